"""What is called horovod.runner.util."""
