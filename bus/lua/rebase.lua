-- include: end_run.lua
-- Begin the leases of a stream anew if the server's clock has jumped since the last look.
-- KEYS: stream   ARGV: group
-- Returns nothing.
-- Race closed: entries of a dead reader that were taken before the clock went back would else look
-- young for as long as it went back. A live holder keeps its own: the owner and the count stay.
rebase(KEYS[1], ARGV[1])
