"""The language of the demo web: word lists, sentence patterns, and prose made of them by a given generator.

Decides what the texts say, nothing else: it knows no host, no page and no HTML. The same generator state gives the same
text. Sentences are patterns with slots, so that two pages share few runs of three words and all read as prose.
Long because it is data.
"""

from __future__ import annotations

import random
import re

_ENGLISH = {
    "thing": """harbour lighthouse orchard bakery workshop library archive ferry bridge canal market greenhouse
        observatory railway tram garden mill quarry brewery studio theatre museum cellar courtyard kitchen attic
        warehouse shipyard windmill reservoir pavilion arcade chapel tower meadow forest trail cabin boathouse
        telescope loom kiln lathe press compass lantern barometer sextant clock violin piano accordion kettle teapot
        bicycle wagon sledge canoe raft tent map atlas ledger notebook almanac calendar letter parcel postcard recipe
        blanket scarf basket ladder fence gate well fountain statue bell flag kite puppet chessboard""",
    "group": """committee council guild cooperative choir orchestra crew team family school society club union
        congregation assembly expedition partnership household neighbourhood class jury board staff band federation""",
    "person": """baker weaver carpenter sailor teacher gardener librarian engineer miller fisherman painter printer
        clockmaker surveyor botanist geologist translator conductor mechanic potter blacksmith tailor shepherd
        beekeeper archivist pilot nurse cook courier violinist glazier mason cooper farrier chandler""",
    "name": """Ada Bram Clara Dario Edith Felix Greta Hugo Ida Jonas Katja Lars Mira Nils Olga Pavel Quinn Rosa Stefan
        Tilda Ugo Vera Wim Xenia Yara Zoltan Agnes Boris Celia Dmitri Elsa Fritz Gita Henrik Inga Jorge""",
    "place": """Ashford Brightwater Coldharbour Dunmore Eastmere Fallowfield Greystone Hollowell Ironbridge Juniper
        Kingsley Larkspur Marlow Northgate Oakhaven Pinewood Quayside Ravenscroft Silverdale Thornbury Underhill
        Valebrook Westmarch Yarrow Zelen Birchwood Crowmarsh Dovedale Elmhurst Foxglove""",
    "adj": """old quiet narrow bright wooden heavy curious patient distant familiar northern southern coastal rural
        crowded empty restored forgotten celebrated modest generous stubborn cheerful careful sudden gradual hidden
        public private seasonal temporary permanent ordinary remarkable delicate sturdy painted rusty polished damp
        sunlit windswept frozen fragrant noisy peaceful ancient modern local foreign costly cheap""",
    "verb": """repaired measured painted catalogued moved reopened photographed described borrowed sold rebuilt
        inspected mapped renamed cleaned tuned weighed translated printed sketched discovered studied defended
        abandoned praised ignored protected counted decorated dismantled lifted insured visited surveyed""",
    "time": """before sunrise|after the storm|in early spring|late in the autumn|during the long winter|on market day|
        every second Thursday|throughout the summer|at low tide|within a week|since the flood|until last year|
        by candlelight|after closing time|on the first of May|between two harvests|over the weekend|at noon""",
    "why": """to save fuel|to please the visitors|for want of space|out of habit|as a precaution|by mistake|
        on advice from abroad|in memory of the founders|without much ceremony|at considerable expense|
        for the third time|against every forecast|with borrowed tools|to everybody's surprise""",
    "number": "three four five six seven eight nine eleven twelve fourteen sixteen twenty thirty forty sixty ninety",
}  # fmt: skip

_ENGLISH_PATTERNS = """
{name} and the {person} of {place} {verb} the {adj} {thing} {time}.
The {adj} {thing} near {place} was {verb} {why}.
A {group} of {number} {person}s {verb} the {thing}, and {name} kept the {adj} {thing}.
Nobody in {place} remembers who {verb} the {thing} {time}.
It takes {number} hours to reach the {thing} from {place}, longer when the {thing} is {adj}.
{time}, the {group} {verb} a {adj} {thing} {why}.
According to {name}, the {thing} is {adj}, the {thing} is not.
Most visitors walk past the {adj} {thing} and never see the {thing} behind it.
In {place} the {person} {verb} {number} {thing}s {why}.
The {group} has {verb} its {thing} {time}, {name} says.
"A {thing} is never {adj} enough," the {person} told {name} in {place}.
Prices for a {adj} {thing} rose by {number} percent {time}.
What began as a {thing} for the {group} has become a {adj} {thing}.
Behind the {thing} stands a {adj} {thing} that a {person} {verb} {why}.
{name} {verb} the {thing}; {name} only {verb} the {thing}.
The road from {place} to {place} passes {number} {adj} {thing}s.
For {number} years the {person} {verb} nothing but a {adj} {thing}.
Each {thing} carries a number, a date and the name of the {adj} {person} who {verb} it.
The {group} met {time} and {verb} the plan for a {thing} in {place}.
Whoever owns the {thing} also keeps the {adj} {thing} {why}.
There are {number} ways to use a {thing}, and the {person} of {place} knows them all.
Rain reached {place} {time} and the {adj} {thing} had to be {verb}.
The {thing} was shown beside a {thing} that {name} had {verb} {why}.
Later the {group} of {place} {verb} both the {adj} {thing} and the {thing}.
{name} writes that a {adj} {person} once {verb} the {thing} {time}.
A short letter from {place} mentions a {thing}, a {thing} and {number} {adj} {thing}s.
"""

_GERMAN = {
    "thing": """Hafen Leuchtturm Bahnhof Garten Turm Brunnen Kahn Ofen Schlüssel Spiegel Koffer Teppich Löffel Mantel
        Kessel Zaun Hügel Wald Weg Markt""",
    "name": "Jürgen Änne Sören Käthe Günther Bärbel Hölger Renate Jörg Hannelore Björn Lütje",
    "adj": "größte schönste älteste ruhige grüne müde kräftige höfliche kühle weiße dünne späte",
    "place": "Köln München Würzburg Lübeck Göttingen Düsseldorf Nürnberg Mühlhausen Jülich Füssen",
    "number": "zwölf fünf dreißig fünfzig vierzig zwei sieben elf",
}
_GERMAN_PATTERNS = """
Der {adj} {thing} von {place} öffnet für {number} Gäste schon früh.
{name} erzählt, dass der {thing} in {place} über {number} Jahre leer stand.
Außerdem prüfte {name} den Plan für den {adj} {thing} gründlich.
Zwischen {place} und {place} führt ein Weg an {number} Mühlen vorüber.
Früher gehörte der {adj} {thing} einer Familie aus {place}.
Nach {number} Tagen hörte {name} endlich, was mit dem {thing} geschah.
Für {name} bleibt der {thing} das Schönste an {place}, der {adj} {thing} das Zweitschönste.
In {place} müssen {number} Straßen gesperrt werden, weil der {thing} größer wird.
"""

_FRENCH = {
    "thing": "marché théâtre château musée jardin clocher moulin pâturage chêne cèdre phare lavoir sentier côteau",
    "name": "Hélène Rémi Zoé François Agnès Jérôme Noël Gaëlle Benoît Anaïs",
    "adj": "fermé rénové célèbre déserté privé élégant abîmé oublié repeint animé",
    "place": "Orléans Besançon Nîmes Évreux Béziers Angoulême Sète Mâcon",
    "number": "cinq sept onze treize vingt trente quarante soixante",
}
_FRENCH_PATTERNS = """
Le {thing} de {place}, longtemps {adj}, a été rouvert après {number} années.
{name} préfère le {thing} {adj} à celui que l'on a bâti près de {place}.
À {place}, {number} élèves ont dessiné un {thing} {adj} pour {name}.
Depuis l'été, {name} répète que le {thing} mérite mieux.
On découvre à {place} un {thing}, puis {number} maisons où {name} a vécu.
Déjà {adj}, le {thing} fut racheté par {name} et {number} associés.
"""

_RUSSIAN = {
    "thing": "дом мост сад театр музей завод поезд пароход колодец фонарь рынок архив двор самовар",
    "name": "Анна Борис Вера Григорий Дарья Егор Жанна Зоя Иван Кира Лев Мария",
    "adj": "старый новый тихий большой зелёный узкий светлый северный деревянный забытый",
    "place": "Твери Казани Самаре Вологде Рязани Калуге Пскове Омске",
    "number": "пять шесть семь восемь девять десять двадцать тридцать",
}
_RUSSIAN_PATTERNS = """
В {place} открыли {adj} {thing}, и {name} пришла туда первой.
{name} пишет, что {thing} стоит здесь уже {number} лет.
Говорят, {adj} {thing} был построен за {number} недель.
Весной {adj} {thing} в {place} снова закрыт для всех.
Когда {name} вернулась, {thing} и {adj} {thing} были на месте.
По дороге к {place} стоят {number} домов и один {adj} {thing}.
"""

_JAPANESE = {
    "thing": "図書館 灯台 市場 庭園 工場 博物館 橋 神社 温泉 時計 本屋 学校 港 駅",
    "name": "田中さん 鈴木さん 山本さん 中村さん 小林さん 加藤さん 佐藤さん 高橋さん",
    "adj": "古い 新しい 静かな 大きな 小さな 明るい 有名な 美しい",
    "place": "京都 大阪 札幌 仙台 長崎 金沢 神戸 奈良",
    "number": "三 五 七 八 十 二十 五十 百",
}
_JAPANESE_PATTERNS = """
{place}の{adj}{thing}は{number}年前に建てられました。
{name}は毎朝{place}の{thing}まで歩きます。
{adj}{thing}について{name}が本を書きました。
春になると{place}では{number}人が{thing}を訪れます。
この{thing}は{name}の家から{number}分です。
{name}と{name}は{adj}{thing}の前で会いました。
"""


_LANGUAGES = {
    "en": (_ENGLISH, _ENGLISH_PATTERNS, " "),
    "de": (_GERMAN, _GERMAN_PATTERNS, " "),
    "fr": (_FRENCH, _FRENCH_PATTERNS, " "),
    "ru": (_RUSSIAN, _RUSSIAN_PATTERNS, " "),
    "ja": (_JAPANESE, _JAPANESE_PATTERNS, ""),
}
_SLOT = re.compile(r"\{(\w+)\}")
Pattern = tuple[str, tuple[list[str], ...]]


def _entries(text: str) -> list[str]:
    return [entry.strip() for entry in text.split("|")] if "|" in text else text.split()


def _compiled(lists: dict[str, str], patterns: str) -> list[Pattern]:
    words = {slot: _entries(text) for slot, text in lists.items()}
    lines = patterns.strip().splitlines()
    return [(_SLOT.sub("%s", line), tuple(words[slot] for slot in _SLOT.findall(line))) for line in lines]


_PATTERNS = {lang: _compiled(lists, patterns) for lang, (lists, patterns, _) in _LANGUAGES.items()}
_WORDS = {lang: {slot: _entries(text) for slot, text in lists.items()} for lang, (lists, _, _) in _LANGUAGES.items()}


def sentence(rng: random.Random, lang: str = "en") -> str:
    """One sentence in `lang` (en, de, fr, ru, ja)."""
    draw = rng.random
    patterns = _PATTERNS[lang]
    text, slots = patterns[int(draw() * len(patterns))]
    text %= tuple([words[int(draw() * len(words))] for words in slots])
    return text[0].upper() + text[1:]


def paragraphs(rng: random.Random, lang: str, count: int) -> list[str]:
    """`count` paragraphs of four to seven sentences."""
    gap = _LANGUAGES[lang][2]
    return [gap.join([sentence(rng, lang) for _ in range(4 + int(rng.random() * 4))]) for _ in range(count)]


def title(rng: random.Random, lang: str = "en") -> str:
    """A short headline in `lang`."""
    words = _WORDS[lang]
    adj, thing, place = (rng.choice(words[slot]) for slot in ("adj", "thing", "place"))
    if lang == "ja":
        return f"{place}の{adj}{thing}"
    joiner = {"en": "in", "de": "in", "fr": "à", "ru": "в"}[lang]
    if lang == "fr":
        return f"{thing.capitalize()} {adj} {joiner} {place}"
    return f"{adj.capitalize()} {thing} {joiner} {place}"


def word(rng: random.Random, slot: str = "thing") -> str:
    """One English word of a list: thing, group, person, name, place, adj, verb."""
    return rng.choice(_WORDS["en"][slot])


def edited(text: str, rng: random.Random, edits: int) -> str:
    """`text` with `edits` of its words replaced: what makes a near copy. Never the same word at the same place."""
    words = text.split(" ")
    for place in rng.sample(range(len(words)), min(edits, len(words))):
        fresh = [thing for thing in _WORDS["en"]["thing"] if thing != words[place]]
        words[place] = rng.choice(fresh)
    return " ".join(words)
