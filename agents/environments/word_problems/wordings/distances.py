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
        The speed of {n} is {a} {mi} per hour, and the trip lasts {b} hours.
        {n} keeps up a speed of {a} {mi} per hour for {b} hours.
        {n} spends {b} hours on the road and covers {a} {mi} every hour.
        During a trip of {b} hours, {n} makes {a} {mi} per hour.
        {n} sits on a bus for {b} hours. The bus moves at {a} {mi} per hour.
        It takes {n} {b} hours to reach the coast at a steady {a} {mi} per hour.
        {n} averages {a} {mi} per hour on a journey that lasts {b} hours.
        A train carries {n} {a} {mi} every hour, and {s} gets off after {b} hours.
        A journey of {b} hours lies behind {n}, with {a} {mi} covered in each hour.
    """,
    "travel.daily": """
        {n} [runs|walks] {a} {mi} in each of {b} {us}.
        Every {u} {n} [runs|walks|swims] {a} {mi}, and {b} {us} pass.
        {n} [runs|walks] for {b} {us}, {a} {mi} every {u}.
        In one {u} {n} [runs|walks] {a} {mi}. {S} goes on for {b} {us}.
        {n}'s training is {a} {mi} a {u}, and it lasts {b} {us}.
        {n} [jogs|hikes] {a} {mi} a {u} and keeps this up for {b} {us}.
        {n} covers {a} {mi} each {u} on foot. After {b} {us} {s} stops.
        {b} {us} long, {n} [jogs|runs|hikes] {a} {mi} per {u}.
        A distance of {a} {mi} is covered by {n} each {u} for {b} {us}.
        {n}'s plan for the next {b} {us} is to [run|walk|swim] {a} {mi} every {u}. {S} sticks to it.
        During {b} {us} of training, {n} [runs|swims] {a} {mi} every {u}.
        The dog of {n} needs {a} {mi} of walking per {u}, and {n} walks it for {b} {us}.
        {n} does {a} {mi} on the bike per {u}. This lasts for {b} {us}.
        On a hike of {b} {us}, {n} manages {a} {mi} per {u}.
    """,
    "travel.legs": """
        {n} {go} {a} {mi} before lunch and {b} {mi} after it.
        {n} {go} {a} {mi} one day and {b} {mi} the next.
        It is {a} {mi} to the river and {b} {mi} from there to the sea. {n} {go} all the way.
        {n} {go} {a} {mi} by car and {b} {mi} by bus.
        From home {n} {go} {a} {mi}. Then {s} {go} {b} {mi} farther.
        After {a} {mi} on Friday, {n} {go} {b} {mi} on Saturday.
        {n}'s trip has a part of {a} {mi} and a part of {b} {mi}.
        The trip of {n} consists of {a} {mi} by train and {b} {mi} by boat.
        {n} covers {a} {mi} before the break and another {b} {mi} after it.
        {n} {go} {a} {mi} to the store. From the store {s} {go} {b} {mi} to the office.
        The distance from {n}'s home to the school is {a} {mi}, and from the school to the beach {b} {mi}. {S} {go} past the school to the beach.
        Yesterday {n} traveled {a} {mi}, and today {s} travels {b} {mi}.
        {n} hikes {a} {mi} up to a hut and then {b} {mi} on to the next village.
        To visit {m}, {n} {go} {a} {mi} on the highway plus {b} {mi} on small roads.
    """,
    "travel.two_speeds": """
        {n} {go} {b} hours at {a} {mi} per hour. After a rest {s} {go} {e} hours at {d} {mi} per hour.
        In the morning {n} {go} for {b} hours at {a} {mi} an hour, in the afternoon for {e} hours at {d} {mi} an hour.
        First {n} {go} {a} {mi} per hour for {b} hours, then {d} {mi} per hour for {e} hours.
        {n} {go} at two speeds: {b} hours at {a} {mi} an hour and {e} hours at {d} {mi} an hour.
        {n}'s speed is {a} {mi} per hour for {b} hours. After that it is {d} {mi} per hour for {e} hours.
        On Monday {n} {go} for {b} hours at {a} {mi} per hour. On Tuesday {s} {go} for {e} hours at {d} {mi} per hour.
        For {b} hours {n} {go} {a} {mi} each hour, and for another {e} hours {d} {mi} each hour.
        {n} spends {b} hours on the highway at {a} {mi} per hour and {e} hours on small roads at {d} {mi} per hour.
        {n}'s trip has a part of {b} hours at {a} {mi} per hour and a part of {e} hours at {d} {mi} per hour.
        A bus takes {n} {a} {mi} per hour for {b} hours. Then a train takes {him} {d} {mi} per hour for {e} hours.
        After {b} hours at {a} {mi} an hour, {n} {go} for {e} more hours at {d} {mi} an hour.
        {n} keeps a speed of {a} {mi} per hour for {b} hours. Then the weather changes, and for {e} hours {s} makes {d} {mi} per hour.
        {n} covers {a} {mi} in each of the first {b} hours and {d} {mi} in each of the next {e} hours.
        Before lunch {n} {go} {b} hours and does {a} {mi} per hour. After lunch it is {e} hours with {d} {mi} per hour.
        The speed is {a} {mi} an hour while {n} {go} for {b} hours, and {d} {mi} an hour during the last {e} hours.
    """,
    "travel.further": """
        {N} then walks {b} {mi}.
        The way goes on for {b} more {mi}.
        After a rest {s} {go} another {b} {mi}.
        {N} {go} {b} {mi} farther than planned.
        There are {b} {mi} more to the hotel, and {s} goes there.
        {N} continues for another {b} {mi}.
        {N} keeps going for {b} more {mi}.
        Another {b} {mi} follow.
        The trip gets {b} {mi} longer because of a closed road.
        {N} takes a wrong turn, which adds {b} {mi}.
        {N} covers an additional {b} {mi} on foot.
        To see a castle, {s} makes an extra loop of {b} {mi}.
        An extra {b} {mi} are covered to get some food.
        {N} drops off a friend, and that makes the trip {b} {mi} longer.
    """,
    "travel.round_trip": """
        {N} comes back by the same road.
        {N} turns around and {go} home the same way.
        {N} also {go} back the whole way.
        Going back is the same distance again.
        {N} {go} there and back.
        The same way is taken back home.
        {N} does the whole way back too.
        {N} heads back home along the same route.
        {N} makes the return trip on the same route.
        The return trip covers the same distance.
        All of this distance is covered again on the way back.
        {N} takes the same route in the other direction to get back.
        For the way home {s} needs to cover the same distance once more.
        {N} finds the door locked and goes back all the way {s} came.
        On the way back it is the same distance as on the way there.
        {N} makes it a round trip and gets back on the same road.
    """,
    "travel.distance": """
        How many {mi} long is the whole way?
        How many {mi} does {s} go in all?
        What is the length of the way in {mi}?
        In all, how many {mi} is it?
        How many {mi} does {n} cover altogether?
        How many {mi} are covered in all?
        Calculate the total distance in {mi}.
        How many {mi} does that make?
        What is the total number of {mi}?
        How long, in {mi}, is {n}'s trip in all?
        Find how many {mi} {n} covers.
        How far is that altogether, in {mi}?
        Altogether, what distance in {mi} has {s} traveled?
    """,
    "travel.remaining": """
        {N} has to go {g_} {mi}. How many {mi} are still ahead?
        The whole way has {g_} {mi}. How many {mi} remain?
        How many {mi} are missing to {g_} {mi}?
        Of {g_} {mi} in all, how many are left?
        It is {g_} {mi} to the sea. How many more {mi} are there?
        The destination is {g_} {mi} from the start. How many {mi} does {n} still have to cover?
        How many more {mi} must {n} cover to reach {g_} {mi}?
        {N} plans to cover a total of {g_} {mi}. How many {mi} does {s} have left?
        If the route is {g_} {mi} long, how much farther in {mi} does {n} need to go?
        What distance in {mi} is left on a route of {g_} {mi}?
        Out of {g_} {mi}, how many {mi} has {n} not covered yet?
        The total distance to the goal is {g_} {mi}. How far is {n} from the goal?
        {N} will be done after {g_} {mi}. How many {mi} are left to go?
        How many {mi} short of {g_} {mi} is {n}?
    """,
    "travel.fuel": """
        For every {k} {mi} one gallon is used. How many gallons does {n} need?
        The car goes {k} {mi} with a gallon. How many gallons are used?
        A gallon is used up after {k} {mi}. How many gallons is that?
        At {k} {mi} per gallon, how many gallons are needed?
        How many gallons does {n} need if the car goes {k} {mi} on a gallon?
        The car gets {k} {mi} per gallon. How many gallons of gas does {n} need?
        How many gallons of gas does it take if a gallon gets the car {k} {mi}?
        A gallon of gas takes {n} {k} {mi}. How many gallons does {s} need?
        The fuel use is a gallon per {k} {mi}. How many gallons does the car burn?
        {P} car burns a gallon of gas every {k} {mi}. How many gallons does it burn in all?
        If the car can go {k} {mi} on each gallon, how many gallons of fuel does it take?
        How much fuel in gallons is used by a car that gets {k} {mi} out of every gallon?
        Each gallon in the tank is good for {k} {mi}. How many gallons must be in the tank?
        With {k} {mi} to the gallon, how many gallons does the trip take?
    """,
    "travel.time": """
        {m} goes the same way, {k} {mi} each hour. How many hours does it take?
        The same distance is done by {m} at {k} {mi} per hour. How many hours is that?
        At {k} {mi} per hour, how many hours does {m} need for the same distance?
        How many hours is {m} on the same way at {k} {mi} an hour?
        {m}'s speed is {k} {mi} an hour. How many hours does {m} need for that way?
        {m} travels the same distance at {k} {mi} per hour. For how many hours does {m} travel?
        How long in hours will it take {m} to cover this distance at {k} {mi} per hour?
        {m} follows on a bike, making {k} {mi} per hour. After how many hours has {m} covered the same distance?
        If {m} makes {k} {mi} in an hour, how many hours does {m} take for the same distance?
        {m} can cover {k} {mi} per hour. How many hours does {m} spend on the same route?
        A truck with {m} at the wheel covers the same distance at {k} {mi} per hour. How many hours is {m} at the wheel?
        How many hours pass until {m}, who does {k} {mi} per hour, has covered the same distance?
        Every hour {m} covers {k} {mi} of the same route. How many hours does {m} need to finish it?
        For the same distance {m} takes a boat with a speed of {k} {mi} per hour. How many hours long is the boat trip?
    """,
    "travel.price": """
        One {mi1} costs ${d}. How many dollars does {n} pay for the trip?
        {N} pays ${d} for every {mi1}. How much does {s} pay in all?
        It costs ${d} a {mi1}. How many dollars is that?
        At ${d} per {mi1}, what does the trip cost?
        How many dollars is it if each {mi1} costs ${d}?
        The price per {mi1} is ${d}. What is the total price in dollars?
        {N} has to pay ${d} per {mi1}. What is the total cost?
        How much does {n} have to pay if the price is ${d} for each {mi1}?
        At a rate of ${d} for each {mi1}, how many dollars does the trip cost?
        If every {mi1} costs ${d}, what is the cost of the whole distance?
        A sponsor gives {n} ${d} for each {mi1}. How much money does {s} raise?
        {N} earns ${d} per {mi1}. How many dollars does {s} earn?
        The company charges {n} ${d} a {mi1}. How much does it charge in total?
        How much money does {s} make if {s} is paid ${d} per {mi1}?
    """,
    "area.rectangle": """
        {n} has a [room|field|yard] with a length of {a} meters and a width of {b} meters.
        {a} meters long and {b} meters wide is the [garden|room|field] of {n}.
        {n} buys a rectangular field, {a} meters by {b} meters.
        {n}'s room has sides of {a} meters and {b} meters.
        A floor in {n}'s house is {a} meters long and {b} meters wide.
        {n}'s rectangular [garden|yard|field] measures {a} meters by {b} meters.
        The width of {n}'s [room|garden|field] is {b} meters, and its length is {a} meters.
        {n} has a [garden|yard|field] {b} meters wide and {a} meters long.
        A rectangle with sides of {a} meters and {b} meters is marked off by {n}.
        {n} owns a piece of land in the shape of a rectangle with a length of {a} meters and a width of {b} meters.
        The sides of {n}'s rectangular [room|kitchen|yard] are {a} meters and {b} meters long.
        The rectangular wall that {n} wants to cover is {a} meters long and {b} meters high.
        {n} plans a rectangular [pool|terrace|field]. It will be {b} meters wide and {a} meters long.
        There is a rectangular lawn behind {n}'s house. Its length is {a} meters, its width {b} meters.
    """,
    "area.area": """
        What is its area?
        How big is the area in square meters?
        Of how many square meters is it?
        How many square meters are there?
        Calculate its area in square meters.
        How many square meters does it cover?
        How many square meters large is it?
        What is the total area in square meters?
        How much area is that in square meters?
        Work out the number of square meters.
        What area does it have, in square meters?
        In square meters, how large is the area?
        How many square meters does that make?
    """,
    "area.price": """
        One square meter costs ${d}. How many dollars does all of it cost?
        It costs ${d} a square meter. How much is it in all?
        {N} pays ${d} for every square meter. What does {s} pay?
        At ${d} per square meter, how many dollars is that?
        For each square meter {s} pays ${d}. How much money is it?
        The price per square meter is ${d}. What is the total price in dollars?
        Covering a square meter costs ${d}. How much does it cost to cover the whole area?
        If the cost is ${d} for each square meter, what does all of it cost?
        How many dollars does {n} spend at a price of ${d} per square meter?
        A worker charges ${d} per square meter. How much does the worker charge in total?
        {N} has all of it painted for ${d} a square meter. What is the bill in dollars?
        How much money does {n} need if the price of a square meter is ${d}?
        Every square meter is sold for ${d}. How much money does {n} get?
        The cost of cleaning is ${d} per square meter. What is the total cost in dollars?
    """,
    "area.seed": """
        For every {k} square meters one bag is used. How many bags are used?
        A bag is used up after {k} square meters. How many bags is that?
        With one bag for {k} square meters, how many bags are there?
        Each bag is for {k} square meters. How many bags must {n} buy?
        {N} uses one bag on {k} square meters. How many does {s} use in all?
        Each bag covers {k} square meters. How many bags are needed to cover the whole area?
        How many bags does it take if each of them lasts for {k} square meters?
        {N} empties a bag on every {k} square meters. How many bags does {s} empty?
        If a can of paint is enough for {k} square meters, how many cans must {n} buy?
        {N} buys cans of paint that cover {k} square meters each. How many cans does {s} need?
        The contents of a bag cover {k} square meters. What is the number of bags needed?
        For each {k} square meters a bag has to be bought. How many bags have to be bought?
        How many bags of [seed|sand], each enough for {k} square meters, does {n} need?
        {k} square meters can be covered with a bag. How many bags are required in total?
    """,
    "fence.around": """
        {n}'s [garden|field|yard] is {a} meters long and {b} meters wide. {S} puts a fence around it.
        Around a [garden|field|yard] of {a} meters by {b} meters {n} puts a fence.
        {n} has a field, {a} meters long and {b} meters wide, and wants a fence all around.
        A [garden|yard] with a length of {a} meters and a width of {b} meters gets a fence from {n}.
        {n} puts a rope around a place of {a} meters by {b} meters.
        There is a fence around the [garden|yard] of {n}. The [garden|yard] is {a} meters long and {b} meters wide.
        {n} goes all around a field of {a} meters by {b} meters.
        The sides of {n}'s rectangular [garden|field|yard] are {a} meters and {b} meters. {S} fences it in on all sides.
        {n}'s rectangular [pool|garden|yard] is {b} meters wide and {a} meters long. A fence is built all around it.
        {n} encloses a rectangular [field|garden] of {a} meters by {b} meters with a fence.
        A rectangular [field|garden|yard] measures {a} meters by {b} meters. {n} needs a fence for its whole perimeter.
        To keep out the deer, {n} surrounds a rectangular garden with a fence. The garden is {b} meters wide and {a} meters long.
        {n} jogs once around a rectangular park that is {a} meters long and {b} meters wide.
        A rectangular playground has a length of {a} meters and a width of {b} meters. {n} puts up a fence along its border.
        A rectangular field of {n}'s, {b} meters wide and {a} meters long, is to be fenced in completely.
        The perimeter of a rectangular [garden|yard] gets a new fence. {n} measures {a} meters for its length and {b} meters for its width.
    """,
    "fence.gate": """
        {N} needs {b} meters less because of a gate.
        There is a gate of {b} meters in it.
        {b} meters are not needed.
        The gate is {b} meters wide and needs no fence.
        {N} has done {b} meters of it already.
        For a gate {b} meters are taken off.
        {b} meters of it are covered by a wall already.
        An opening of {b} meters is left for the gate.
        {N} skips {b} meters of it.
        {N} needs nothing for {b} meters of it, since a gate goes there.
        Because of the gate, it gets {b} meters shorter.
        Of this length, {b} meters are taken up by a gate.
        {N} has already finished {b} meters of it.
        All but {b} meters of it still have to be done.
        {N} subtracts {b} meters for the gate.
    """,
    "fence.length": """
        How many meters is it in all?
        What length is that in meters?
        How many meters are there?
        In meters, how long is that?
        How many meters does that make?
        Calculate the total length in meters.
        What is the total number of meters?
        How many meters does that come to?
        What total length does that give in meters?
        Work out how many meters that is.
        How many meters is that altogether?
        In total, how many meters is that?
        Find the number of meters.
    """,
    "fence.price": """
        One meter costs ${d}. How many dollars does all of it cost?
        It costs ${d} a meter. How much is it in all?
        {N} pays {d} dollars per meter. What does {s} pay?
        At ${d} per meter, how many dollars is that?
        For each meter {s} pays ${d}. How much money is it?
        The price per meter is ${d}. What is the total price in dollars?
        The cost of a meter is ${d}. What is the total cost in dollars?
        How many dollars does {n} spend at a price of ${d} per meter?
        If {n} has to pay ${d} for each meter, how much money does {s} need?
        Every meter comes at a price of ${d}. How much is it altogether?
        A worker charges ${d} a meter. How much does the worker charge in total?
        What does {n} pay altogether when the price of a meter is ${d}?
        How much money is it at a cost of ${d} for every meter?
        {N} is charged {d} dollars per meter. How many dollars does {s} have to pay?
    """,
}
