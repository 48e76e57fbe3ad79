"""The smallest permissions (Redis ACL) with which a client works: learned, proven, and each one needed."""
