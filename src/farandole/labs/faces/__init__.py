"""The faces lab: processes and threads, batches, weak and strong scaling of three networks."""
