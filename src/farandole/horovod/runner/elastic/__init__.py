"""What programs import from Horovod's elastic runner."""
