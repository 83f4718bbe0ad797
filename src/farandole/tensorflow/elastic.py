"""What Horovod has here is not there yet; importing this says so."""

from __future__ import annotations

from farandole.errors import no_elastic

# Without a name: Python would take it for its own, and say of `from ... import elastic` less.
raise ModuleNotFoundError(no_elastic(__package__))
