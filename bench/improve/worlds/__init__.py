"""`bench improve --worlds`: does the closed loop improve a team on instructions that need APIs that
it has never seen?"""
