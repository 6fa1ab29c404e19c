"""What only long hours show: memory, tasks and open files that grow. `make soak`."""
