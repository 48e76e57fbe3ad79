"""What is different between two versions of BullMQ, and since which release."""
