"""Images for container mode: Dockerfiles, a compose file, and what builds them."""
