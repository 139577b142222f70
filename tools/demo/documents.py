"""Generates documents: sums, facts, tool calls, copying, recall, small stories and code, as plain text and as chats.

An Author writes for one side of a fixed split: what is held out is never written for training, and the test sets are drawn from
nothing else. The split is by hash, so it depends on no seed and no order of drawing. A tenth is held out of

    sums            ordered pairs, but for one-digit pairs and multiples of ten, which are steps in the thoughts of other sums; the
                    arguments of the tool `add`, whose result tells the sum, are subject to it too
    subtractions    pairs whose second number is neither below ten nor a multiple of ten, for the same reason
    facts           (fact, wording)
    the rest        copies (wording, text), codes, tool calls (question), (name, greeting), (animal, name) of a story, code-like
                    text (question)

All one-digit sums are in the training text: there are only a hundred.
"""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import dataclass
from typing import Callable

import world as w
from chat import ANSWER, PROMPT, Message, Span, spans


def digest(*key) -> int:
    return int(hashlib.md5(repr(key).encode()).hexdigest()[:8], 16)


def held_out(kind: str, *key) -> bool:
    """Whether this item belongs to the tests."""
    return digest(kind, *key) % 10 == 0


def sum_held_out(a: int, b: int) -> bool:
    is_step = (a < 10 and b < 10) or a % 10 == 0 or b % 10 == 0
    return not is_step and held_out("add", a, b)


def difference_held_out(a: int, b: int) -> bool:
    return b >= 10 and b % 10 != 0 and held_out("sub", a, b)


def article(noun: str) -> str:
    return ("an " if noun[0] in "aeiou" else "a ") + noun


@dataclass(frozen=True)
class Mix:
    """What share of the documents is of which kind; the rest are mixed chats. Training widens it phase by phase."""

    one_digit: float                # operands up to 9 ..
    to_twenty: float                # .. up to 20; the rest up to 99
    copy_words: tuple[int, ...]
    plain: float
    tools: float
    recall: float                   # a code among 8 to 44 sentences
    dense: float = 0.10             # chats of three to seven turns of one task: many answers a token
    single: float = 0.16            # one-turn chats of the tasks that need most practice
    dense_tasks: str = "add sub sub fact fact copy copy copy"
    single_tasks: str = "add add sub sub fact fact fact copy copy"


CHAT_TASKS = {"add": 24, "sub": 18, "fact": 28, "small_talk": 8, "day": 4, "recall": 6, "copy": 16, "story": 6, "count": 2, "mul": 3,
              "code": 5}
EVEN_MIX = Mix(0.15, 0.17, (1, 2, 3, 4), plain=0.24, tools=0.15, recall=0.03)


@dataclass
class Exchange:
    question: str
    thought: str
    answer: str


class Author:
    def __init__(self, seed: int, mix: Mix = EVEN_MIX, for_tests: bool = False):
        self.random = random.Random(seed)
        self.mix = mix
        self.for_tests = for_tests

    def one_of(self, options):
        return self.random.choice(options)

    def chance(self, p: float) -> bool:
        return self.random.random() < p

    def on_my_side(self, draw: Callable, is_held_out: Callable[..., bool]):
        """Draws until the item is on this author's side of the split."""
        while True:
            item = draw()
            if is_held_out(*item) == self.for_tests:
                return item

    # ---- tasks: each gives one exchange ----------------------------------------------------------------------
    def number(self) -> int:
        u = self.random.random()
        top = 9 if u < self.mix.one_digit else 20 if u < self.mix.one_digit + self.mix.to_twenty else 99
        return self.random.randint(0, top)

    def sum(self) -> tuple[int, int]:
        return self.on_my_side(lambda: (self.number(), self.number()), sum_held_out)

    def difference(self) -> tuple[int, int]:
        return self.on_my_side(lambda: tuple(sorted((self.number(), self.number()), reverse=True)), difference_held_out)

    @staticmethod
    def sum_steps(a: int, b: int) -> str:
        if a < 10 and b < 10:
            return f"{a}+{b}={a + b}"
        ones, tens = a % 10 + b % 10, a - a % 10 + b - b % 10
        return f"{a % 10}+{b % 10}={ones}, {a - a % 10}+{b - b % 10}={tens}, {tens}+{ones}={a + b}"

    @staticmethod
    def difference_steps(a: int, b: int) -> str:
        if b < 10:
            return f"{a}-{b}={a - b}"
        left = a - (b - b % 10)
        return f"{a}-{b - b % 10}={left}, {left}-{b % 10}={a - b}"

    SUM_WORDINGS = ["What is {}+{}?", "{}+{}=", "{} + {} = ?", "Add {} and {}.", "What is {} plus {}?"]

    def add(self) -> Exchange:
        a, b = self.sum()
        return Exchange(self.one_of(self.SUM_WORDINGS).format(a, b), self.sum_steps(a, b), str(a + b))

    def sub(self) -> Exchange:
        a, b = self.difference()
        asks = [f"What is {a}-{b}?", f"{a}-{b}=", f"{a} - {b} = ?", f"Subtract {b} from {a}.", f"What is {a} minus {b}?"]
        return Exchange(self.one_of(asks), self.difference_steps(a, b), str(a - b))

    def mul(self) -> Exchange:
        a, b = self.random.randint(0, 10), self.random.randint(0, 10)
        asks = [f"What is {a}*{b}?", f"{a}*{b}=", f"Multiply {a} by {b}.", f"What is {a} times {b}?"]
        return Exchange(self.one_of(asks), f"{a}*{b}={a * b}", str(a * b))

    def fact_item(self) -> tuple[str, str, str, int]:
        """(kind, key, value, number of the wording)"""
        def draw():
            kind, key, value = self.one_of(w.ALL_FACTS)
            return kind, key, value, self.random.randrange(len(w.FACTS[kind][1]))
        return self.on_my_side(draw, lambda kind, key, value, wording: held_out("fact", kind, key, wording))

    def fact(self) -> Exchange:
        kind, key, value, wording = self.fact_item()
        return Exchange(w.FACTS[kind][1][wording].format(key), f"{key}, {kind}: {value}", value)

    def day(self) -> Exchange:
        names = self.one_of([w.DAYS, w.MONTHS])
        i, what = self.random.randrange(len(names)), "day" if names is w.DAYS else "month"
        kind = self.random.randrange(4)
        at = lambda j: names[j % len(names)]
        if kind == 0:
            return Exchange(f"What {what} comes after {at(i)}?", f"after {at(i)}: {at(i + 1)}", at(i + 1))
        if kind == 1:
            return Exchange(f"What {what} comes before {at(i)}?", f"before {at(i)}: {at(i - 1)}", at(i - 1))
        if kind == 2:
            i, n = self.random.randrange(7), self.random.randint(2, 6)
            walk = [w.DAYS[(i + j) % 7] for j in range(n + 1)]
            return Exchange(f"What day is {n} days after {walk[0]}?", ", ".join(walk), walk[-1])
        i = self.random.randrange(12)
        return Exchange(f"How many days are in {w.MONTHS[i]}?", f"{w.MONTHS[i]}: {w.MONTH_DAYS[i]}", str(w.MONTH_DAYS[i]))

    def count(self) -> Exchange:
        a = self.random.randint(0, 20)
        b = a + self.random.randint(3, 8)
        return Exchange(f"Count from {a} to {b}.", f"start {a}, stop {b}", ", ".join(map(str, range(a, b + 1))))

    def small_talk(self) -> Exchange:
        if self.chance(0.13):
            return self.greeting()[1]
        question = self.one_of(list(w.SMALL_TALK))
        return Exchange(question, *w.SMALL_TALK[question])

    def greeting(self) -> tuple[str, Exchange]:
        """(name, exchange in which the user tells it)"""
        name, wording = self.on_my_side(lambda: (self.one_of(w.NAMES), self.one_of(w.GREETINGS)), lambda *x: held_out("name", *x))
        return name, Exchange(wording.format(name), "The user tells me a name.", f"Hello {name}! Nice to meet you.")

    def copy_text(self, n: int) -> str:
        words = [self.one_of(w.WORDS) if self.chance(0.9) else str(self.random.randint(0, 99)) for _ in range(n)]
        return " ".join(words)

    COPY_WORDINGS = ["Repeat: ", "Copy this: ", "Say again: "]

    def copy(self, n: int | None = None) -> Exchange:
        def draw():
            if n is None and self.chance(0.25):
                text = self.one_of(self.one_of([w.CITIES, w.NAMES, w.ROOMS, w.WORDS]))
            else:
                text = self.copy_text(n or self.one_of(self.mix.copy_words))
            return self.one_of(self.COPY_WORDINGS), text
        wording, text = self.on_my_side(draw, lambda *x: held_out("copy", *x))
        return Exchange(wording + text, "copy the text", text)

    def sentence(self) -> str:
        name = self.one_of(w.NAMES)
        return self.one_of([
            f"The {self.one_of(w.ANIMALS)} saw {article(self.one_of(w.COLOURS))} {self.one_of(w.WORDS)}.",
            f"{name} likes the {self.one_of(w.COLOURS)} {self.one_of(w.WORDS)}.",
            f"On {self.one_of(w.DAYS)} it was {self.one_of(['hot', 'cold', 'wet', 'dry', 'dark'])}.",
            f"{name} went to {self.one_of(w.CITIES)}."])

    def code_number(self) -> int:
        return self.on_my_side(lambda: (self.random.randint(1000, 9999),), lambda c: held_out("code number", c))[0]

    def recall(self, before: int | None = None, after: int | None = None) -> Exchange:
        """A code among so many sentences."""
        code, noun = self.code_number(), self.one_of(["code", "password", "number"])
        if before is None:
            n = self.one_of([0, 0, 0, 1, 1, 2, 2, 3, 5, 8])
            before = self.random.randint(0, n)
            after = n - before
        told = self.one_of([f"Remember the {noun} {code}.", f"The {noun} is {code}."])
        text = [self.sentence() for _ in range(before)] + [told] + [self.sentence() for _ in range(after)]
        return Exchange(" ".join(text) + f" What is the {noun}?", f"The {noun} is {code}.", str(code))

    def long_recall(self) -> Exchange:
        n = self.random.randint(8, 44)
        before = self.random.randint(0, 2) if self.chance(0.6) else self.random.randint(0, n)
        return self.recall(before, n - before)

    @staticmethod
    def story_text(animal: str, name: str | None = None) -> str:
        """Everything but a given name follows from the animal."""
        h = digest("st", animal)
        name = name or w.NAMES[h % len(w.NAMES)]
        place, thing, colour = w.PLACES[h // 30 % 6], w.OBJECTS[h // 180 % 6], w.COLOURS[h // 7 % 10]
        friend = w.ANIMALS[(w.ANIMALS.index(animal) + 1 + h // 1080 % 5) % len(w.ANIMALS)]
        return (f"Once upon a time there was {article(animal)} named {name}. {name} lived near the {place}. One day {name} found a {colour} "
                f"{thing} by the {place}. \"Whose {thing} is this?\" asked {name}. {article(friend).capitalize()} came and said, \"It is my "
                f"{thing}! Thank you, {name}!\" {name} gave the {thing} back to the {friend}. From that day the {animal} and the {friend} were "
                "good friends. The end.")

    def story_subject(self) -> tuple[str, str]:
        return self.on_my_side(lambda: (self.one_of(w.ANIMALS), self.one_of(w.NAMES)), lambda *x: held_out("story", *x))

    STORY_WORDINGS = ["Tell me a story about {}.", "Write a short story about {}.", "Tell a story about {}."]

    def story(self) -> Exchange:
        animal, name = self.story_subject()
        if not self.for_tests and self.chance(0.5):
            name = None
        hero = article(animal) + (f" named {name}" if name else "")
        ask = self.one_of(self.STORY_WORDINGS)
        return Exchange(ask.format(hero), f"a short story about {hero}", self.story_text(animal, name))

    OPERATORS = {"adds": ("add", "+"), "subtracts": ("sub", "-"), "multiplies": ("mul", "*"), "divides": ("div", "/")}

    def code(self) -> Exchange:
        def draw():
            word, n = self.one_of(w.WORDS), self.random.randint(2, 20)
            return self.one_of([
                (f"Write Python code that prints {word} {n} times.", "a for loop", f"for i in range({n}):\n    print(\"{word}\")"),
                (f"Print {word} {n} times in Python.", "a for loop", f"for i in range({n}):\n    print(\"{word}\")"),
                (f"Write Python code that prints {word}.", "use print", f"print(\"{word}\")"),
                (f"Print {word} in Python.", "use print", f"print(\"{word}\")"),
                (f"Write Python code that prints the numbers from 1 to {n}.", "a for loop", f"for i in range(1, {n + 1}):\n    print(i)")])
        if not self.for_tests and self.chance(0.1):
            verb, (name, sign) = self.one_of(list(self.OPERATORS.items()))
            return Exchange(f"Write a Python function that {verb} two numbers.", f"def {name}", f"def {name}(a, b):\n    return a {sign} b")
        return Exchange(*self.on_my_side(draw, lambda ask, *_: held_out("code", ask)))

    def task(self, name: str | None = None) -> Exchange:
        if name is None:
            name = self.random.choices(list(CHAT_TASKS), CHAT_TASKS.values())[0]
        return getattr(self, name)()

    # ---- documents ---------------------------------------------------------------------------------------------
    def system_prompt(self) -> list[Message]:
        return [Message("system", self.one_of(w.SYSTEM_PROMPTS))] if self.chance(0.15) else []

    def chat(self, exchanges: list[Exchange], think: bool, system: list[Message]) -> list[Span]:
        messages = list(system)
        for e in exchanges:
            messages += [Message("user", e.question), Message("assistant", e.answer)]
        messages[-1].thought = exchanges[-1].thought if think else ""
        return spans(messages)

    def mixed_chat(self) -> list[Span]:
        """Several tasks in a row; some begin with a name or a code that is asked for at the end."""
        turns = self.one_of([1, 1, 1, 2, 2, 3, 3, 4, 5])
        exchanges = [self.task() for _ in range(turns)]
        if turns > 1:
            u = self.random.random()
            if u < 0.22:
                name, exchanges[0] = self.greeting()
                exchanges[-1] = Exchange(self.one_of(w.ASK_NAME), f"The name is {name}.", f"Your name is {name}.")
            elif u < 0.37:
                code = self.code_number()
                exchanges[0] = Exchange(f"Remember the code {code}.", "Remember it.", "OK, I will remember it.")
                exchanges[-1] = Exchange("What is the code?", f"The code is {code}.", str(code))
        return self.chat(exchanges, self.chance(0.33), self.system_prompt())

    def one_task_chat(self, tasks: str, turns: int, think: float) -> list[Span]:
        name = self.one_of(tasks.split())
        return self.chat([self.task(name) for _ in range(turns)], self.chance(think), [])

    def tool_use(self, tool: str) -> tuple[str, dict, str, str]:
        """(question, arguments, what the tool answers, what the assistant then says)"""
        def draw():
            r = self.random
            city, other, name, room = self.one_of(w.CITIES), self.one_of(w.CITIES), self.one_of(w.NAMES), self.one_of(w.ROOMS)
            if tool == "get_weather":
                sky, degrees = self.one_of(["sunny", "rainy", "cloudy", "windy"]), r.randint(0, 35)
                return (self.one_of([f"What is the weather in {city}?", f"How is the weather in {city}?"]), {"city": city},
                        json.dumps({"weather": sky, "degrees": degrees}), f"It is {sky} in {city}, {degrees} degrees.")
            if tool == "get_time":
                clock = f"{r.randint(0, 23):02d}:{r.randint(0, 59):02d}"
                return (self.one_of([f"What time is it in {city}?", f"Tell me the time in {city}."]), {"city": city}, clock,
                        f"It is {clock} in {city}.")
            if tool == "add":
                a, b = self.sum()
                return (self.one_of([f"Use the tool to add {a} and {b}.", f"Add {a} and {b} with the tool."]), {"a": a, "b": b},
                        str(a + b), f"The result is {a + b}.")
            if tool == "multiply":
                a, b = r.randint(0, 99), r.randint(0, 99)
                return (self.one_of([f"Use the tool to multiply {a} and {b}.", f"Multiply {a} and {b} with the tool."]), {"a": a, "b": b},
                        str(a * b), f"The result is {a * b}.")
            if tool == "set_timer":
                n = r.randint(1, 60)
                return self.one_of([f"Set a timer for {n} minutes.", f"Start a timer of {n} minutes."]), {"minutes": n}, "ok", "Done."
            if tool == "call_contact":
                return self.one_of([f"Call {name}.", f"Please call {name}."]), {"name": name}, "ok", "Done."
            if tool == "get_distance":
                km = f"{r.randint(2, 99) * 100} km"
                return (self.one_of([f"How far is it from {city} to {other}?", f"What is the distance from {city} to {other}?"]),
                        {"start": city, "end": other}, km, f"It is {km} from {city} to {other}.")
            if tool == "set_light":
                on = self.chance(0.5)
                word = "on" if on else "off"
                return (self.one_of([f"Turn {word} the light in the {room}.", f"Switch {word} the {room} light."]), {"room": room, "on": on},
                        "ok", "Done.")
            n = r.randint(10, 30)
            return (self.one_of([f"Set the temperature in the {room} to {n} degrees.", f"Set the {room} to {n} degrees."]),
                    {"room": room, "degrees": n}, "ok", "Done.")
        return self.on_my_side(draw, lambda question, *_: held_out("tool", question))

    def tool_chat(self) -> list[Span]:
        """One to three tools. Half of the documents hold several calls, for practice; some need no tool at all."""
        think = self.chance(0.4)
        if self.chance(0.5):
            names = self.random.sample(list(w.TOOLS), self.one_of([1, 2]))
            uses = self.random.randint(2, 4 if len(names) == 1 else 3)
        else:
            names = self.random.sample(list(w.TOOLS), self.one_of([1, 1, 1, 2, 3]))
            uses = 1
        messages = self.system_prompt()
        for i in range(uses):
            last, u = i == uses - 1, self.random.random()
            if last and uses == 1 and u < 0.12:
                e = self.one_of([self.fact, self.small_talk, self.add, self.day])()
                messages += [Message("user", e.question), Message("assistant", e.answer, "No tool is needed." if think else "")]
                break
            tool = self.one_of(names)
            question, arguments, result, said = self.tool_use(tool)
            messages += [Message("user", question), Message("assistant", "", f"I call {tool}." if think and last else "", [(tool, arguments)])]
            if not last or (uses == 1 and u < 0.5):
                messages += [Message("tool", result), Message("assistant", said, "The tool answered." if think and last else "")]
        return spans(messages, [w.tool_definition(n) for n in names])

    END: Span = ("<|endoftext|>", ANSWER)

    def equation(self) -> tuple[str, str, str]:
        """(left side, result, steps)"""
        u = self.random.random()
        if u < 0.52:
            a, b = self.sum()
            return f"{a}+{b}", str(a + b), self.sum_steps(a, b)
        if u < 0.9:
            a, b = self.difference()
            return f"{a}-{b}", str(a - b), self.difference_steps(a, b)
        a, b = self.random.randint(0, 10), self.random.randint(0, 10)
        return f"{a}*{b}", str(a * b), f"{a}*{b}={a * b}"

    def plain(self) -> list[list[Span]]:
        kind = self.random.choices(["equation", "fact", "story", "code", "text"], [76, 18, 2, 1, 3])[0]
        if kind == "equation":
            u = self.random.random()
            if u < 0.65:        # documents of one line: "1+1=" always stands alone, and ends after its answer
                return [[(f"{left}=", PROMPT), (result, ANSWER), self.END] for left, result, _ in (self.equation() for _ in range(8))]
            with_steps = u > 0.85
            out: list[Span] = [("Steps:\n" if with_steps else "Equations:\n", PROMPT)]
            for _ in range(self.random.randint(2, 5) if with_steps else self.random.randint(2, 12)):
                left, result, steps = self.equation()
                out += [(left + ": ", PROMPT), (steps + "\n", ANSWER)] if with_steps else [(left + "=", PROMPT), (result + "\n", ANSWER)]
            return [out + [self.END]]
        if kind == "fact":
            out = []
            for _ in range(self.random.randint(1, 6)):
                fact, key, value, _ = self.fact_item()
                out += [(f"The {fact} of {key} is", PROMPT), (f" {value}.\n", ANSWER)]
            return [out + [self.END]]
        if kind == "story":
            return [[("Once upon", PROMPT), (self.story_text(self.one_of(w.ANIMALS)).removeprefix("Once upon") + "\n", ANSWER), self.END]]
        if kind == "code":
            e = self.code()
            return [[(f"# {e.question}\n", PROMPT), (e.answer + "\n", ANSWER), self.END]]
        return [[(" ".join(self.sentence() for _ in range(self.random.randint(2, 6))) + "\n", 0.5), self.END]]

    def documents(self) -> list[list[Span]]:
        """One draw: usually one document, or several one-line ones."""
        m, u = self.mix, self.random.random()
        for share, write in ((m.plain, self.plain),
                             (m.tools, lambda: [self.tool_chat()]),
                             (m.recall, lambda: [self.chat([self.long_recall()], self.chance(0.2), [])]),
                             (m.dense, lambda: [self.one_task_chat(m.dense_tasks, self.random.randint(3, 7), 0.33)]),
                             (m.single, lambda: [self.one_task_chat(m.single_tasks, 1, 0.25)])):
            if u < share:
                return write()
            u -= share
        return [self.mixed_chat()]


def stream(seed: int, mix: Mix):
    author = Author(seed, mix)
    while True:
        yield from author.documents()
