"""Everything for Node.js: package.json and its lock, the manifest of Lua scripts, and the driver of real BullMQ."""
