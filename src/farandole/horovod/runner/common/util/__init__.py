"""What is called horovod.runner.common.util."""
