"""What is called horovod.common."""
