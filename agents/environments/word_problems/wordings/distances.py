"""Further wordings about ways, fences and areas, by scheme."""

# ruff: noqa: E501 (one wording, one line)

from __future__ import annotations

WORDINGS: dict[str, str] = {
    "travel.speed": """
        At {a} {mi} an hour, {n} {go} for {b} hours.
        {n} {go} {b} hours at {a} {mi} an hour.
        {n} is on the way for {b} hours and {go} {a} {mi} each hour.
        In every hour {n} {go} {a} {mi}, for {b} hours in all.
        The trip of {n} takes {b} hours at {a} {mi} per hour.
    """,
    "travel.daily": """
        {n} [runs|walks] {a} {mi} in each of {b} {us}.
        Every {u} {n} [runs|walks|swims] {a} {mi}, and {b} {us} pass.
        {n} [runs|walks] for {b} {us}, {a} {mi} every {u}.
        In one {u} {n} [runs|walks] {a} {mi}. {S} goes on for {b} {us}.
        {n}'s training is {a} {mi} a {u}, and it lasts {b} {us}.
    """,
    "travel.legs": """
        {n} {go} {a} {mi} before lunch and {b} {mi} after it.
        {n} {go} {a} {mi} one day and {b} {mi} the next.
        It is {a} {mi} to the river and {b} {mi} from there to the sea. {n} {go} all the way.
        {n} {go} {a} {mi} by car and {b} {mi} by bus.
        From home {n} {go} {a} {mi}. Then {s} {go} {b} {mi} farther.
    """,
    "travel.two_speeds": """
        {n} {go} {b} hours at {a} {mi} per hour. After a rest {s} {go} {e} hours at {d} {mi} per hour.
        In the morning {n} {go} for {b} hours at {a} {mi} an hour, in the afternoon for {e} hours at {d} {mi} an hour.
        First {n} {go} {a} {mi} per hour for {b} hours, then {d} {mi} per hour for {e} hours.
        {n} {go} at two speeds: {b} hours at {a} {mi} an hour and {e} hours at {d} {mi} an hour.
        {n}'s speed is {a} {mi} per hour for {b} hours. After that it is {d} {mi} per hour for {e} hours.
        On Monday {n} {go} for {b} hours at {a} {mi} per hour. On Tuesday {s} {go} for {e} hours at {d} {mi} per hour.
        For {b} hours {n} {go} {a} {mi} each hour, and for another {e} hours {d} {mi} each hour.
    """,
    "travel.further": """
        {N} then walks {b} {mi}.
        The way goes on for {b} more {mi}.
        After a rest {s} {go} another {b} {mi}.
        {N} {go} {b} {mi} farther than planned.
        There are {b} {mi} more to the hotel, and {s} goes there.
    """,
    "travel.round_trip": """
        {N} comes back by the same road.
        {N} turns around and {go} home the same way.
        {N} also {go} back the whole way.
        Going back is the same distance again.
        {N} {go} there and back.
        The same way is taken back home.
        {N} does the whole way back too.
    """,
    "travel.distance": """
        How many {mi} long is the whole way?
        How many {mi} does {s} go in all?
        What is the length of the way in {mi}?
        In all, how many {mi} is it?
    """,
    "travel.remaining": """
        {N} has to go {g_} {mi}. How many {mi} are still ahead?
        The whole way has {g_} {mi}. How many {mi} remain?
        How many {mi} are missing to {g_} {mi}?
        Of {g_} {mi} in all, how many are left?
        It is {g_} {mi} to the sea. How many more {mi} are there?
    """,
    "travel.fuel": """
        For every {k} {mi} one gallon is used. How many gallons does {n} need?
        The car goes {k} {mi} with a gallon. How many gallons are used?
        A gallon is used up after {k} {mi}. How many gallons is that?
        At {k} {mi} per gallon, how many gallons are needed?
        How many gallons does {n} need if the car goes {k} {mi} on a gallon?
    """,
    "travel.time": """
        {m} goes the same way, {k} {mi} each hour. How many hours does it take?
        The same distance is done by {m} at {k} {mi} per hour. How many hours is that?
        At {k} {mi} per hour, how many hours does {m} need for the same distance?
        How many hours is {m} on the same way at {k} {mi} an hour?
        {m}'s speed is {k} {mi} an hour. How many hours does {m} need for that way?
    """,
    "travel.price": """
        One {mi1} costs ${d}. How many dollars does {n} pay for the trip?
        {N} pays ${d} for every {mi1}. How much does {s} pay in all?
        It costs ${d} a {mi1}. How many dollars is that?
        At ${d} per {mi1}, what does the trip cost?
        How many dollars is it if each {mi1} costs ${d}?
    """,
    "area.rectangle": """
        {n} has a [room|field|yard] with a length of {a} meters and a width of {b} meters.
        {a} meters long and {b} meters wide is the [garden|room|field] of {n}.
        {n} buys a rectangular field, {a} meters by {b} meters.
        {n}'s room has sides of {a} meters and {b} meters.
        A floor in {n}'s house is {a} meters long and {b} meters wide.
    """,
    "area.area": """
        What is its area?
        How big is the area in square meters?
        Of how many square meters is it?
        How many square meters are there?
    """,
    "area.price": """
        One square meter costs ${d}. How many dollars does all of it cost?
        It costs ${d} a square meter. How much is it in all?
        {N} pays ${d} for every square meter. What does {s} pay?
        At ${d} per square meter, how many dollars is that?
        For each square meter {s} pays ${d}. How much money is it?
    """,
    "area.seed": """
        For every {k} square meters one bag is used. How many bags are used?
        A bag is used up after {k} square meters. How many bags is that?
        With one bag for {k} square meters, how many bags are there?
        Each bag is for {k} square meters. How many bags must {n} buy?
        {N} uses one bag on {k} square meters. How many does {s} use in all?
    """,
    "fence.around": """
        {n}'s [garden|field|yard] is {a} meters long and {b} meters wide. {S} puts a fence around it.
        Around a [garden|field|yard] of {a} meters by {b} meters {n} puts a fence.
        {n} has a field, {a} meters long and {b} meters wide, and wants a fence all around.
        A [garden|yard] with a length of {a} meters and a width of {b} meters gets a fence from {n}.
        {n} puts a rope around a place of {a} meters by {b} meters.
        There is a fence around the [garden|yard] of {n}. The [garden|yard] is {a} meters long and {b} meters wide.
        {n} goes all around a field of {a} meters by {b} meters.
    """,
    "fence.gate": """
        {N} needs {b} meters less because of a gate.
        There is a gate of {b} meters in it.
        {b} meters are not needed.
        The gate is {b} meters wide and needs no fence.
        {N} has done {b} meters of it already.
        For a gate {b} meters are taken off.
    """,
    "fence.length": """
        How many meters is it in all?
        What length is that in meters?
        How many meters are there?
        In meters, how long is that?
    """,
    "fence.price": """
        One meter costs ${d}. How many dollars does all of it cost?
        It costs ${d} a meter. How much is it in all?
        {N} pays {d} dollars per meter. What does {s} pay?
        At ${d} per meter, how many dollars is that?
        For each meter {s} pays ${d}. How much money is it?
    """,
}
