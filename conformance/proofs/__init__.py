"""Runnable proofs of disputed rows: what the written specification says, and what real BullMQ does instead."""
