"""The corpus: bugs that BullMQ and its ports really had, which of them the kit catches, and the proof."""
