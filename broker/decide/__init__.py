"""Pure: `decide(problem) -> Plan`. Options, floors, CP-SAT, verify, explain. No clock, dice or
I/O."""
