"""Several hosts: shared memory inside of each, one stream of each between them."""
