"""The pinned bullmq package: which Node.js, `npm ci` into a cache, its Lua scripts extracted and verified."""
