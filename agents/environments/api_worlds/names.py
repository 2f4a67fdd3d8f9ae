"""Names and things that fill the worlds. Plain data."""

from __future__ import annotations

from loopline.agents.environments.word_problems.words import HE, SHE

PEOPLE = SHE + HE
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
CITIES = (
    "Oslo", "Rome", "Paris", "Berlin", "Madrid", "Vienna", "Lisbon", "Dublin", "Athens", "Prague",
    "Warsaw", "Zurich", "Geneva", "Milan", "Munich", "Hamburg", "Porto", "Seville", "Bergen",
    "Helsinki", "Riga", "Vilnius", "Tallinn", "Krakow", "Boston", "Denver", "Seattle", "Austin",
    "Chicago", "Miami", "Dallas", "Toronto", "Montreal", "Lima", "Quito", "Bogota", "Santiago",
    "Cairo", "Tunis", "Nairobi", "Accra", "Delhi", "Mumbai", "Tokyo", "Osaka", "Seoul", "Taipei",
    "Sydney",
)  # fmt: skip
NO_CITIES = ("Atlantis", "Gondor", "Narnia", "Utopia", "Camelot", "Avalon", "Elbonia", "Ruritania")
"""Places that exist in no world."""
PRODUCTS = (
    "lamp", "kettle", "toaster", "blender", "mug", "plate", "teapot", "chair", "desk", "shelf",
    "mirror", "carpet", "pillow", "blanket", "towel", "umbrella", "backpack", "suitcase", "wallet",
    "scarf", "jacket", "raincoat", "sweater", "helmet", "tent", "lantern", "compass", "notebook",
    "stapler", "keyboard", "mouse", "monitor", "headphones", "speaker", "camera", "tripod",
    "charger", "printer", "guitar", "violin",
)  # fmt: skip
COLOURS = ("red", "blue", "green", "black", "white", "yellow", "silver", "brown")
EVENTS = (
    "Team meeting", "Dentist", "Haircut", "Yoga class", "Piano lesson", "Budget review",
    "Project demo", "Job interview", "Book club", "Lunch break", "Board meeting", "Car service",
    "Eye test", "Swim class", "Choir practice", "Parent evening", "Sales call", "Design review",
    "Chess club", "Tax appointment", "Garden visit", "Photo session", "Staff training", "Coffee",
    "Language course", "Doctor", "Workshop", "House viewing", "Math tutoring", "Dance class",
)  # fmt: skip
SKIES = ("sunny", "cloudy", "rainy", "snowy", "windy", "foggy")
PLACE_KINDS = ("museum", "park", "pharmacy", "bakery", "station", "theater")
PLACE_WORDS = (
    "Central", "Royal", "Old Town", "Riverside", "Garden", "Harbor", "Hill", "Lake", "Castle",
    "North", "South", "Grand",
)  # fmt: skip
STREETS = ("Mill Road", "High Street", "Oak Lane", "King Street", "Park Row", "Bridge Street",
           "Church Lane", "Station Road", "Rose Alley", "Elm Street")  # fmt: skip
HOTELS = (
    "Hotel Bristol", "Hotel Astoria", "Hotel Regina", "Hotel Savoy", "Hotel Miramar",
    "Hotel Central", "Hotel Europa", "Hotel Continental", "Hotel Belvedere", "Hotel Victoria",
    "Hotel Ambassador", "Hotel Excelsior", "Hotel Panorama", "Hotel Imperial", "Hotel Metropol",
    "Hotel Bellevue", "Hotel Splendid", "Hotel Aurora", "Hotel Paradise", "Hotel Atlantic",
)  # fmt: skip
RESTAURANTS = (
    "Blue Door", "Golden Fork", "Green Table", "Red Lantern", "Silver Spoon", "Old Mill",
    "Sea Breeze", "Black Olive", "White Rabbit", "Corner House", "Lemon Tree", "Copper Pot",
    "Wild Thyme", "Happy Pig", "Stone Oven", "Little Garden", "Two Brothers", "Salt House",
    "Fig Leaf", "Night Owl", "River Cafe", "Sunny Side", "Iron Pan", "Royal Curry",
)  # fmt: skip
CUISINES = ("Italian", "Indian", "Thai", "Mexican", "Greek", "Chinese", "French", "Turkish")
DISHES: tuple[str, ...] = (
    "soup", "salad", "pasta", "risotto", "curry", "noodles", "tacos", "steak", "burger", "omelette",
    "dumplings", "paella", "stew", "pizza", "pie", "fish",
)  # fmt: skip
ACCOUNTS = ("checking", "savings", "travel", "business", "family")
BILLS = ("rent", "water", "power", "phone", "internet", "insurance", "heating", "gym")
MESSAGES = (
    "Call me back", "I am late", "See you soon", "Happy birthday", "Thanks a lot",
    "Dinner is ready", "Bring the keys", "The train is delayed", "Good luck", "I am at home",
    "Please wait for me", "Meeting is moved", "Send the report", "I found it", "Welcome back",
    "Buy some milk",
)  # fmt: skip
TOPICS = ("history", "travel", "cooking", "science", "art", "music", "gardening", "sailing")
AUTHORS = ("Hart", "Lindt", "Moreau", "Okafor", "Petrov", "Quinn", "Rossi", "Sato", "Tanner",
           "Ueda", "Vega", "Weiss", "Young", "Zeller", "Archer", "Bloom")  # fmt: skip
BOOKS = (
    "The Long Road", "Silent Rivers", "A Winter Garden", "Paper Boats", "The Glass Tower",
    "Distant Bells", "Under the Oak", "Seven Lanterns", "The Salt Path", "Morning Tides",
    "The Last Orchard", "Iron Wings", "Hidden Valleys", "The Copper Key", "Northern Skies",
    "A Quiet Harbor", "Broken Compass", "The Painted Wall", "Letters Home", "Green Horizons",
    "The Clockmaker", "Desert Songs", "Stone and Sky", "The Wild Coast", "First Light",
)  # fmt: skip
MOVIES = (
    "Night Train", "Lost Island", "The Detective", "Moon Harbor", "Red Planet", "Golden City",
    "Fast Lane", "The Inventor", "Ocean Deep", "Summer Band", "Shadow Game", "Little Giants",
    "The Mountain", "Second Chance", "Star Pilot", "The Magician", "Cold Front", "Dragon Gate",
    "Street Chef", "The Bridge",
)  # fmt: skip
GENRES = ("comedy", "drama", "thriller", "animation", "adventure", "romance")
CURRENCIES = ("EUR", "USD", "GBP", "JPY", "CHF", "NOK", "SEK", "CAD", "INR", "BRL")
INGREDIENTS = ("rice", "lentils", "chicken", "mushrooms", "spinach", "potatoes", "cheese", "salmon",
               "pumpkin", "beans", "eggs", "cabbage")  # fmt: skip
RECIPE_STYLES = ("spicy", "creamy", "roasted", "grilled", "baked", "crispy", "smoky", "fresh")
RECIPE_FORMS = ("bowl", "bake", "salad", "soup", "wrap", "gratin")
TEAMS = ("Lions", "Tigers", "Falcons", "Sharks", "Wolves", "Bears", "Eagles", "Panthers", "Ravens",
         "Bulls", "Hornets", "Pirates", "Rockets", "Dolphins", "Cobras", "Rangers")  # fmt: skip
TASKS = (
    "water the plants", "feed the cat", "buy stamps", "clean the oven", "wash the car",
    "fix the bike", "pay the plumber", "sort the mail", "call the bank", "order ink",
    "renew the passport", "book a babysitter", "iron the shirts", "mow the lawn", "buy flowers",
    "print the tickets", "return the drill", "pack the bags", "paint the fence", "empty the bins",
    "charge the drill", "write the report", "bake a cake", "check the tires",
)  # fmt: skip

POOLS: tuple[frozenset[str], ...] = tuple(
    frozenset(pool)
    for pool in (
        PEOPLE, WEEKDAYS, CITIES + NO_CITIES, PRODUCTS, EVENTS, SKIES, HOTELS, RESTAURANTS,
        CUISINES, DISHES, ACCOUNTS, BILLS, TOPICS, AUTHORS, BOOKS, MOVIES, GENRES, CURRENCIES,
        INGREDIENTS, TEAMS, TASKS, MESSAGES,
    )
)  # fmt: skip
"""Sets of words of one kind: an answer that names several of a kind is not a choice."""
