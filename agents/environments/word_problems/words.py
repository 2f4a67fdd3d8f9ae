"""Names, things and units that fill the slots of a wording. Plain data."""

from __future__ import annotations

SHE = (
    "Ada", "Alice", "Amy", "Anna", "Bella", "Carla", "Chloe", "Clara", "Diana", "Ella", "Emma",
    "Eva", "Fatima", "Grace", "Hana", "Ines", "Jane", "Julia", "Kate", "Laura", "Lena", "Lily",
    "Maria", "Maya", "Mia", "Nina", "Nora", "Olga", "Priya", "Rosa", "Ruth", "Sara", "Sofia",
    "Tara", "Vera", "Zoe",
)  # fmt: skip
HE = (
    "Adam", "Ali", "Ben", "Carlos", "Daniel", "David", "Eric", "Felix", "Finn", "George", "Hugo",
    "Ivan", "Jack", "James", "John", "Jonas", "Karl", "Leo", "Liam", "Lucas", "Marco", "Mark",
    "Max", "Nick", "Noah", "Omar", "Oscar", "Paul", "Peter", "Ravi", "Sam", "Simon", "Theo",
    "Tim", "Tom", "Victor",
)  # fmt: skip

THINGS = (
    ("apples", "apple"), ("pears", "pear"), ("oranges", "orange"), ("plums", "plum"),
    ("lemons", "lemon"), ("eggs", "egg"), ("cookies", "cookie"), ("muffins", "muffin"),
    ("candies", "candy"), ("carrots", "carrot"), ("tomatoes", "tomato"), ("nuts", "nut"),
    ("marbles", "marble"), ("stickers", "sticker"), ("stamps", "stamp"), ("coins", "coin"),
    ("shells", "shell"), ("beads", "bead"), ("buttons", "button"), ("cards", "card"),
    ("pencils", "pencil"), ("pens", "pen"), ("crayons", "crayon"), ("notebooks", "notebook"),
    ("books", "book"), ("balloons", "balloon"), ("toys", "toy"), ("blocks", "block"),
    ("roses", "rose"), ("tulips", "tulip"), ("flowers", "flower"), ("seeds", "seed"),
    ("candles", "candle"), ("ribbons", "ribbon"), ("photos", "photo"), ("posters", "poster"),
    ("cupcakes", "cupcake"), ("peaches", "peach"), ("onions", "onion"), ("potatoes", "potato"),
    ("bottles", "bottle"), ("ropes", "rope"), ("masks", "mask"), ("bracelets", "bracelet"),
)  # fmt: skip
GOODS = (
    ("shirts", "shirt"), ("hats", "hat"), ("scarves", "scarf"), ("lamps", "lamp"),
    ("chairs", "chair"), ("mugs", "mug"), ("plates", "plate"), ("bags", "bag"),
    ("games", "game"), ("dolls", "doll"), ("books", "book"), ("pens", "pen"),
    ("notebooks", "notebook"), ("sandwiches", "sandwich"), ("pizzas", "pizza"),
    ("cakes", "cake"), ("melons", "melon"), ("towels", "towel"), ("plants", "plant"),
    ("belts", "belt"), ("socks", "sock"), ("kites", "kite"), ("burgers", "burger"),
    ("pies", "pie"), ("magazines", "magazine"), ("balls", "ball"),
)  # fmt: skip
CONTAINERS = (
    ("boxes", "box"), ("bags", "bag"), ("baskets", "basket"), ("jars", "jar"),
    ("packs", "pack"), ("crates", "crate"), ("trays", "tray"), ("bowls", "bowl"),
    ("drawers", "drawer"), ("packets", "packet"), ("cartons", "carton"), ("tins", "tin"),
)  # fmt: skip
PERIODS = (("hour", "hours"), ("day", "days"), ("week", "weeks"), ("month", "months"))
PAIRED_KINDS = (
    ("red", "blue"), ("green", "yellow"), ("small", "large"), ("old", "new"),
    ("white", "black"), ("plain", "striped"), ("blue", "green"), ("big", "little"),
)  # fmt: skip
RELATIVES = ("sister", "brother", "cousin", "mother", "father", "aunt", "uncle", "friend")
CHILDREN = ("friends", "children", "classmates", "cousins", "students", "neighbors")
TRIPS = ("drives", "cycles", "travels", "rides")
LENGTHS = ("miles", "kilometers")

NUMBER_WORDS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve",
)  # fmt: skip
FRACTIONS = {2: "half", 3: "a third", 4: "a quarter", 5: "a fifth"}
MULTIPLES = {2: "twice", 3: "three times", 4: "four times", 5: "five times", 6: "six times"}
MULTIPLYING = {2: "doubles", 3: "triples", 4: "quadruples"}

ASIDES = (
    "It is a [sunny|rainy|windy] day.",
    "{n} is very [happy|busy|careful] today.",
    "{n} likes to [plan ahead|help others|keep count].",
    "Nothing is [wasted|forgotten].",
    "The weather is [nice|cold|warm].",
    "{n} lives [near the park|by the sea|in a small town].",
    "{n}'s {rel} is watching.",
)
"""Sentences without numbers that change nothing."""

CONNECTIVES = (
    "Then", "Later,", "After that,", "The next day,", "Afterwards,", "That evening,",
    "In the afternoon,", "A week later,", "Next,", "Soon after,",
)  # fmt: skip
