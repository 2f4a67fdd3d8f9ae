-- include: entries.lua
-- Restart the leases of a stream if the server's clock has jumped since the last check.
-- KEYS: stream   ARGV: group
-- Returns nothing.
-- Race closed: entries that a dead reader took before the clock went back would otherwise look
-- young for as long as it went back. A live holder keeps its entries: the owner and the count stay.
rebase(KEYS[1], ARGV[1])
