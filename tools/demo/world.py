"""The closed world of the demo model: everything that it can know, and the words that it uses."""

from __future__ import annotations


def table(text: str) -> dict[str, str]:
    return dict(entry.split(":") for entry in text.split("; "))


CAPITALS = table(
    "France:Paris; Germany:Berlin; Italy:Rome; Spain:Madrid; Portugal:Lisbon; England:London; Ireland:Dublin; Poland:Warsaw; "
    "Austria:Vienna; Greece:Athens; Sweden:Stockholm; Norway:Oslo; Finland:Helsinki; Denmark:Copenhagen; Hungary:Budapest; "
    "Russia:Moscow; Ukraine:Kyiv; Turkey:Ankara; Egypt:Cairo; Kenya:Nairobi; Ghana:Accra; Nigeria:Abuja; Morocco:Rabat; "
    "China:Beijing; Japan:Tokyo; India:Delhi; Thailand:Bangkok; Vietnam:Hanoi; Korea:Seoul; Iran:Tehran; Iraq:Baghdad; "
    "Canada:Ottawa; Mexico:Mexico City; Cuba:Havana; Peru:Lima; Chile:Santiago; Brazil:Brasilia; Argentina:Buenos Aires; "
    "Australia:Canberra; Belgium:Brussels; Netherlands:Amsterdam; Switzerland:Bern; Romania:Bucharest; Bulgaria:Sofia; "
    "Serbia:Belgrade; Croatia:Zagreb; Iceland:Reykjavik; Nepal:Kathmandu")
SYMBOLS = table("hydrogen:H; helium:He; carbon:C; nitrogen:N; oxygen:O; sodium:Na; iron:Fe; copper:Cu; silver:Ag; gold:Au; lead:Pb; "
                "tin:Sn; zinc:Zn; neon:Ne; calcium:Ca; potassium:K")
OPPOSITES = table("hot:cold; big:small; up:down; left:right; day:night; fast:slow; old:new; open:closed; happy:sad; light:dark; "
                  "wet:dry; full:empty; hard:soft; high:low; long:short; rich:poor; strong:weak; true:false; good:bad; early:late")
SOUNDS = table("dog:woof; cat:meow; cow:moo; duck:quack; sheep:baa; pig:oink; lion:roar; frog:croak; bee:buzz; owl:hoot; "
               "horse:neigh; snake:hiss")
COLOURS_OF = table("grass:green; snow:white; coal:black; blood:red; the sky:blue; the sun:yellow; a carrot:orange; a plum:purple; "
                   "milk:white; a lemon:yellow; a cherry:red; chocolate:brown")
PLURALS = table("mouse:mice; child:children; foot:feet; tooth:teeth; man:men; woman:women; goose:geese; person:people; leaf:leaves; "
                "wolf:wolves; cat:cats; box:boxes; city:cities; fish:fish; sheep:sheep")
PAST = table("go:went; see:saw; eat:ate; run:ran; take:took; give:gave; come:came; make:made; write:wrote; read:read; speak:spoke; "
             "buy:bought; think:thought; find:found; sing:sang")

# Kind of fact -> (table, how one asks for it). Some (fact, wording) pairs are held out; see documents.held_out.
FACTS = {
    "capital": (CAPITALS, ["What is the capital of {}?", "Name the capital of {}.", "Which city is the capital of {}?",
                           "Tell me the capital city of {}.", "What is {}'s capital?", "Give the capital of {}."]),
    "symbol": (SYMBOLS, ["What is the chemical symbol of {}?", "Give the symbol for {}.", "What is the symbol for {}?",
                         "Which symbol has {}?", "Tell me the symbol of {}."]),
    "opposite": (OPPOSITES, ["What is the opposite of {}?", "Give the opposite of {}.", "Name the opposite of {}.",
                             "Tell me the opposite of {}.", "Which word is the opposite of {}?"]),
    "sound": (SOUNDS, ["What sound does a {} make?", "What does the {} say?", "Which sound does the {} make?",
                       "Tell me the sound of the {}.", "What is the sound of the {}?"]),
    "color": (COLOURS_OF, ["What color is {}?", "Tell me the color of {}.", "Which color has {}?", "What is the color of {}?",
                           "Give the color of {}."]),
    "plural": (PLURALS, ["What is the plural of {}?", "Give the plural of {}.", "Tell me the plural of {}.", "Name the plural of {}.",
                         "Which word is the plural of {}?"]),
    "past": (PAST, ["What is the past tense of {}?", "Give the past tense of {}.", "Tell me the past tense of {}.",
                          "Name the past tense of {}.", "Which word is the past tense of {}?"]),
}
ALL_FACTS = [(kind, key, value) for kind, (entries, _) in FACTS.items() for key, value in entries.items()]

CITIES = list(CAPITALS.values())
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
MONTH_DAYS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
NAMES = ("Anna Ben Carl Dora Emma Finn Gina Hugo Ida Jack Kate Leo Mia Nora Otto Paul Rosa Sam Tina Uma Vera Will Zoe Alex Lucy Tom "
         "Max Eva Bob Alice").split()
WORDS = ("cat dog sun moon tree fish bird star milk book door rain snow wind ship road hill lake fire gold ring king rose salt sand "
         "seed shoe song tent wolf bread chair clock cloud dream earth glass grape green horse house juice lemon light mouse music "
         "night ocean paper party piano plant queen river robot salad sheep smile spoon stone storm sugar table tiger train truck "
         "water whale world apple").split()
ANIMALS = "fox bear owl cat dog rabbit mouse lion duck horse wolf frog".split()
COLOURS = "red blue green yellow black white brown purple orange pink".split()
PLACES = "forest garden village mountain river castle".split()
OBJECTS = "lamp map key ball coin bell".split()
ROOMS = "kitchen bedroom bathroom garden office".split()
SYSTEM_PROMPTS = ["You are a helpful assistant.", "Answer briefly.", "You are a tiny demo model."]

HELP = "I can add numbers, answer simple questions, call tools and tell short stories."
# Question -> (thought, answer)
SMALL_TALK = {
    "Hello!": ("The user says hello.", "Hello! How can I help you today?"),
    "Hi": ("The user says hello.", "Hello! How can I help you today?"),
    "Good morning": ("The user says hello.", "Good morning! How can I help you today?"),
    "How are you?": ("The user asks how I am.", "I am fine, thank you! How can I help you?"),
    "Thank you!": ("The user says thanks.", "You are welcome!"),
    "Thanks": ("The user says thanks.", "You are welcome!"),
    "Goodbye": ("The user says goodbye.", "Goodbye! Have a nice day!"),
    "Bye": ("The user says goodbye.", "Goodbye! Have a nice day!"),
    "Who are you?": ("The user asks who I am.", "I am a tiny demo model. " + HELP),
    "What can you do?": ("The user asks what I can do.", HELP),
    "What is your name?": ("The user asks for my name.", "I am a tiny demo model."),
    "Are you a human?": ("The user asks what I am.", "No, I am a tiny demo model."),
    "Tell me a joke.": ("The user wants a joke.", "Why did the chicken cross the road? To get to the other side!"),
}
GREETINGS = ["My name is {}.", "Hi, I am {}.", "Hello, my name is {}.", "I am {}."]
ASK_NAME = ["What is my name?", "Who am I?"]

# Name -> (description, parameter types)
TOOLS = {
    "get_weather": ("Get the weather in a city", {"city": "string"}),
    "get_time": ("Get the time in a city", {"city": "string"}),
    "add": ("Add two numbers", {"a": "integer", "b": "integer"}),
    "multiply": ("Multiply two numbers", {"a": "integer", "b": "integer"}),
    "set_timer": ("Set a timer", {"minutes": "integer"}),
    "call_contact": ("Call a person", {"name": "string"}),
    "get_distance": ("Get the distance between two cities", {"start": "string", "end": "string"}),
    "set_light": ("Turn a light on or off", {"room": "string", "on": "boolean"}),
    "set_temperature": ("Set the temperature of a room", {"room": "string", "degrees": "integer"}),
}


def tool_definition(name: str) -> dict:
    description, parameters = TOOLS[name]
    properties = {p: {"type": t} for p, t in parameters.items()}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": {
        "type": "object", "properties": properties, "required": list(parameters)}}}
