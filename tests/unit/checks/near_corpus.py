# ruff: noqa: E501 - a set of answers a line reads as the table that it is
"""Sets of 30 answers in five languages, of which it is known whether they say one thing: two corpora apart.

Half of the sets are answers that really differ, inside a fixed frame; half say one thing in different ways. The first
corpus was there while the rules were made, the second was not looked at. Neither knows the rules' lists of words.
"""

from __future__ import annotations

import random
from typing import NamedTuple

LANGUAGES = ("en", "ko", "de", "fr", "es")
ANSWERS = 30


class AnswerSet(NamedTuple):
    """``same``: the answers say one thing."""

    language: str
    name: str
    same: bool
    answers: list[str]


Frames = dict[str, list[tuple[str, str, list[str]]]]
Ways = dict[str, list[tuple[list[str], list[str], list[str]]]]

# (name, frame, values): one frame, and what differs in it.
FRAMES_ONE: Frames = {
    "en": [
        ("names", "After reading all the applications I would offer the position to {}.", ["Amelia", "Jonas", "Priya", "Mateo", "Chen", "Fatima"]),
        ("letters", "The correct option is {}.", ["A", "B", "C", "D", "E", "F"]),
        ("sides", "At the next junction you should turn {} and keep going.", ["left", "right"]),
        ("signs", "The relation is: 3/7 {} 0.43", ["<", ">", "="]),
    ],
    "ko": [
        ("weekdays", "회의는 {}에 하는 것이 가장 좋겠습니다.", ["월요일", "화요일", "수요일", "목요일", "금요일"]),
        ("sides", "다음 교차로에서 {}으로 도세요.", ["왼쪽", "오른쪽"]),
        ("names", "이번 달의 우수 사원은 {}입니다.", ["김민수", "이서연", "박지훈", "최유진", "정하늘"]),
        ("letters", "정답은 {}입니다.", ["A", "B", "C", "D"]),
    ],
    "de": [
        ("trade", "Bei diesem Kurs sollten Sie die Aktie jetzt {}.", ["kaufen", "verkaufen"]),
        ("weekdays", "Der Termin passt am besten am {}.", ["Montag", "Dienstag", "Mittwoch", "Donnerstag", "Freitag"]),
        ("names", "Den Zuschlag bekommt {}.", ["Annika", "Bernd", "Carla", "Dieter", "Elif"]),
        ("denied", "Das Ger\u00e4t ist {} wasserdicht.", ["", "nicht"]),
    ],
    "fr": [
        ("cities", "Pour un week-end au calme, je vous conseille {}.", ["Annecy", "Bordeaux", "Colmar", "Dijon", "Honfleur"]),
        ("letters", "La bonne r\u00e9ponse est la {}.", ["A", "B", "C", "D", "E", "F"]),
        ("sides", "Au carrefour, tournez \u00e0 {}.", ["gauche", "droite"]),
        ("numbers", "Le d\u00e9lai est de {} jours.", ["3", "7", "14", "30"]),
    ],
    "es": [
        ("trade", "Con este precio conviene {} las acciones.", ["comprar", "vender"]),
        ("names", "La candidata m\u00e1s adecuada es {}.", ["Luc\u00eda", "Carmen", "Valeria", "In\u00e9s", "Jimena"]),
        ("weekdays", "La reuni\u00f3n ser\u00e1 el {}.", ["lunes", "martes", "mi\u00e9rcoles", "jueves", "viernes"]),
        ("denied", "El producto {} contiene gluten.", ["s\u00ed", "no"]),
    ],
}  # fmt: skip

# (beginnings, ways to say it, ends): any of each.
WAYS_ONE: Ways = {
    "en": [
        (["", "Sure. ", "Of course, "], ["the capital of France is Paris", "Paris is the capital of France", "it's Paris", "France's capital city is Paris", "that would be Paris"], [".", "!", ", as far as I know."]),
        ([""], ["You can return it within 30 days", "Returns are accepted for 30 days", "We take it back if it is sent within 30 days", "A refund is possible for 30 days", "Within 30 days you may send it back"], [".", " after the purchase."]),
        (["", "Yes. ", "Yes, "], ["the shop is open on Sunday", "we are open on Sundays, too", "our doors are open this Sunday", "you can visit us on Sunday"], [".", "!"]),
        (["I think ", "In short, ", ""], ["water boils at 100 degrees", "the boiling point of water is 100 degrees", "at 100 degrees water begins to boil"], [".", " at sea level."]),
    ],
    "ko": [
        (["", "네, ", "물론입니다. "], ["프랑스의 수도는 파리입니다", "파리가 프랑스의 수도입니다", "수도는 파리예요", "정답은 파리입니다"], [".", "!"]),
        (["", "안내해 드립니다. "], ["구매 후 7일 안에 환불할 수 있습니다", "7일 이내라면 환불이 가능합니다", "환불은 7일까지 됩니다", "7일 안에 보내 주시면 돈을 돌려 드립니다"], [".", " 감사합니다."]),
        ([""], ["매장은 일요일에도 문을 엽니다", "일요일에도 영업합니다", "일요일에 방문하셔도 됩니다", "저희는 일요일에 쉬지 않습니다"], [".", "!"]),
        (["", "확인해 보니 "], ["배송은 3일 걸립니다", "3일이면 도착합니다", "도착까지 3일이 필요합니다"], [".", " 기다려 주세요."]),
    ],
    "de": [
        (["", "Gerne: ", "Klar, "], ["die Hauptstadt von Frankreich ist Paris", "Paris ist die Hauptstadt Frankreichs", "das ist Paris"], [".", "!"]),
        ([""], ["Sie k\u00f6nnen die Ware 14 Tage lang zur\u00fcckgeben", "Eine R\u00fcckgabe ist innerhalb von 14 Tagen m\u00f6glich", "Innerhalb von 14 Tagen nehmen wir alles zur\u00fcck", "Die Frist f\u00fcr den Widerruf betr\u00e4gt 14 Tage"], [".", " Das ist kostenlos."]),
        (["", "Ja, "], ["wir haben am Sonntag ge\u00f6ffnet", "der Laden ist sonntags offen", "auch am Sonntag k\u00f6nnen Sie kommen"], [".", "!"]),
        (["Nein, ", "Leider "], ["das geht nicht", "ist das nicht m\u00f6glich", "k\u00f6nnen wir das nicht tun", "l\u00e4sst sich das nicht machen"], [".", ". Wir bitten um Verst\u00e4ndnis."]),
    ],
    "fr": [
        (["", "Bien s\u00fbr. ", "Oui, "], ["la capitale de l'Italie est Rome", "Rome est la capitale de l'Italie", "c'est Rome"], [".", " !"]),
        ([""], ["Vous pouvez annuler jusqu'\u00e0 la veille", "L'annulation est possible jusqu'\u00e0 la veille", "Jusqu'\u00e0 la veille, vous annulez sans frais", "Une annulation la veille ne co\u00fbte rien"], [".", " Merci."]),
        (["", "En effet, "], ["le magasin est ferm\u00e9 le dimanche", "nous n'ouvrons pas le dimanche", "le dimanche, c'est ferm\u00e9", "il n'y a personne le dimanche"], ["."]),
        (["Selon nos informations, ", ""], ["le train part \u00e0 8 heures", "le d\u00e9part est \u00e0 8 heures", "\u00e0 8 heures, le train s'en va"], [".", " pr\u00e9cises."]),
    ],
    "es": [
        (["", "Claro. ", "S\u00ed, "], ["la capital de Per\u00fa es Lima", "Lima es la capital de Per\u00fa", "se trata de Lima"], [".", "!"]),
        ([""], ["Puede devolverlo en 30 d\u00edas", "La devoluci\u00f3n es posible durante 30 d\u00edas", "Tiene 30 d\u00edas para devolverlo", "Aceptamos devoluciones hasta 30 d\u00edas despu\u00e9s"], [".", " Gracias."]),
        (["", "Lo siento, "], ["no hay habitaciones libres", "el hotel est\u00e1 completo", "todas las habitaciones est\u00e1n ocupadas", "no queda ninguna habitaci\u00f3n"], [".", " para esa noche."]),
        ([""], ["El pedido llega ma\u00f1ana", "Ma\u00f1ana recibir\u00e1 su pedido", "La entrega es ma\u00f1ana", "Su paquete estar\u00e1 ah\u00ed ma\u00f1ana"], [".", " por la ma\u00f1ana."]),
    ],
}  # fmt: skip

FRAMES_TWO: Frames = {
    "en": [
        ("products", "Considering the budget and the reviews, we would buy the {} model.", ["Orion", "Vega", "Altair", "Sirius", "Polaris"]),
        ("letters", "Answer: {}", ["A", "B", "C", "D", "E", "F"]),
        ("trade", "My recommendation for this stock at today's price is to {} it.", ["buy", "sell", "hold"]),
        ("weekdays", "The delivery is going to arrive on {} morning.", ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday"]),
    ],
    "ko": [
        ("trade", "현재 가격에서는 이 주식을 {}하는 것이 좋습니다.", ["매수", "매도"]),
        ("weekdays", "택배는 {} 오전에 도착할 예정입니다.", ["월요일", "화요일", "수요일", "목요일", "금요일"]),
        ("cities", "여름 휴가지로는 {}을 추천합니다.", ["부산", "강릉", "속초", "여수", "경주"]),
        ("denied", "이 제품은 물에 {}.", ["강합니다", "강하지 않습니다"]),
    ],
    "de": [
        ("sides", "Nehmen Sie an der Kreuzung die Stra\u00dfe nach {}.", ["links", "rechts"]),
        ("letters", "Richtig ist Antwort {}.", ["A", "B", "C", "D", "E", "F"]),
        ("signs", "Es gilt: x {} 5", ["<", ">", "="]),
        ("cities", "F\u00fcr das erste B\u00fcro empfehle ich {} als Standort.", ["Kiel", "Ulm", "Erfurt", "Mainz", "Trier"]),
    ],
    "fr": [
        ("trade", "\u00c0 ce cours, il vaut mieux {} l'action.", ["acheter", "vendre"]),
        ("weekdays", "Le rendez-vous est fix\u00e9 au {}.", ["lundi", "mardi", "mercredi", "jeudi", "vendredi"]),
        ("names", "Le prix est attribu\u00e9 \u00e0 {}.", ["Camille", "Bastien", "Oc\u00e9ane", "Th\u00e9o", "Manon"]),
        ("denied", "Ce mod\u00e8le {} compatible.", ["est", "n'est pas"]),
    ],
    "es": [
        ("sides", "En la rotonda gire a la {}.", ["izquierda", "derecha"]),
        ("letters", "La opci\u00f3n correcta es la {}.", ["A", "B", "C", "D", "E"]),
        ("numbers", "El total es {} euros.", ["12", "15,5", "18", "21"]),
        ("cities", "Para vivir todo el a\u00f1o yo elegir\u00eda {}.", ["M\u00e1laga", "Gij\u00f3n", "Teruel", "C\u00e1diz", "Vigo"]),
    ],
}  # fmt: skip

WAYS_TWO: Ways = {
    "en": [
        (["", "Certainly! ", "Well, "], ["the meeting starts at 9", "we begin the meeting at 9", "9 is when the meeting starts", "the start of the meeting is at 9"], [".", " sharp."]),
        ([""], ["Your password must be changed every year", "Please choose a new password each year", "Once a year a new password is required", "Passwords expire after a year"], [".", ""]),
        (["", "Unfortunately, "], ["the museum is closed today", "today the museum does not open", "you cannot visit the museum today"], [".", ". Sorry!"]),
        (["", "From the data, "], ["sales rose by 5 percent", "we sold 5 percent more", "there was an increase of 5 percent in sales"], [".", " last year."]),
    ],
    "ko": [
        (["", "네. "], ["회의는 9시에 시작합니다", "9시에 회의가 있습니다", "9시부터 회의를 합니다"], [".", " 늦지 마세요."]),
        ([""], ["비밀번호는 매년 바꿔야 합니다", "해마다 비밀번호를 변경해 주세요", "일 년에 한 번 비밀번호 변경이 필요합니다"], [".", ""]),
        (["", "죄송합니다. "], ["오늘은 박물관이 쉽니다", "박물관은 오늘 문을 열지 않습니다", "오늘 박물관 관람은 어렵습니다"], ["."]),
        (["", "자료에 따르면 "], ["매출이 5% 늘었습니다", "매출은 5% 증가했습니다", "5%만큼 더 팔았습니다"], [".", "!"]),
    ],
    "de": [
        (["", "Nat\u00fcrlich. ", "Also, "], ["die Sitzung beginnt um 9 Uhr", "um 9 Uhr geht die Sitzung los", "Beginn der Sitzung ist 9 Uhr"], [".", "!"]),
        ([""], ["Das Passwort ist jedes Jahr zu \u00e4ndern", "\u00c4ndern Sie Ihr Passwort einmal im Jahr", "Einmal j\u00e4hrlich braucht es ein neues Passwort"], [".", ""]),
        (["", "Leider "], ["hat das Museum heute geschlossen", "bleibt das Museum heute zu", "ist heute im Museum niemand"], ["."]),
        (["Wie man sieht, ", ""], ["der Umsatz stieg um 5 Prozent", "es gab 5 Prozent mehr Umsatz", "ein Plus von 5 Prozent beim Umsatz"], [".", " im letzten Jahr."]),
    ],
    "fr": [
        (["", "Oui. ", "Alors, "], ["la r\u00e9union commence \u00e0 9 heures", "nous commen\u00e7ons la r\u00e9union \u00e0 9 heures", "d\u00e9but de la r\u00e9union : 9 heures"], [".", ""]),
        ([""], ["Le mot de passe doit changer chaque ann\u00e9e", "Changez de mot de passe une fois par an", "Tous les ans, il faut un nouveau mot de passe"], ["."]),
        (["", "Malheureusement, "], ["le mus\u00e9e est ferm\u00e9 aujourd'hui", "aujourd'hui, le mus\u00e9e n'ouvre pas", "vous ne pouvez pas visiter le mus\u00e9e aujourd'hui"], [".", " !"]),
        (["D'apr\u00e8s les chiffres, ", ""], ["les ventes ont augment\u00e9 de 5 %", "on a vendu 5 % de plus", "la hausse des ventes est de 5 %"], ["."]),
    ],
    "es": [
        (["", "Por supuesto. ", "Bueno, "], ["la reuni\u00f3n empieza a las 9", "a las 9 comienza la reuni\u00f3n", "el inicio de la reuni\u00f3n es a las 9"], [".", "!"]),
        ([""], ["La contrase\u00f1a debe cambiarse cada a\u00f1o", "Cambie su contrase\u00f1a una vez al a\u00f1o", "Cada a\u00f1o hace falta otra contrase\u00f1a"], ["."]),
        (["", "Lamentablemente "], ["el museo est\u00e1 cerrado hoy", "hoy no abre el museo", "hoy no se puede visitar el museo"], [".", " Disculpe."]),
        (["Seg\u00fan los datos, ", ""], ["las ventas subieron un 5 por ciento", "se vendi\u00f3 un 5 por ciento m\u00e1s", "hubo un 5 por ciento m\u00e1s de ventas"], [".", ""]),
    ],
}  # fmt: skip

_CORPORA = {1: (FRAMES_ONE, WAYS_ONE), 2: (FRAMES_TWO, WAYS_TWO)}


def corpus(number: int, seed: int) -> list[AnswerSet]:
    """The 40 sets of the first or second corpus, drawn with this seed; values and ways of one set come equally often."""
    frames, ways = _CORPORA[number]
    made = random.Random(f"{number} {seed}")
    sets = []
    for language in LANGUAGES:
        for name, frame, values in frames[language]:
            answers = [" ".join(frame.format(value).split()) for value in _evenly(values, made)]
            sets.append(AnswerSet(language, name, False, answers))
        for at, (before, said, after) in enumerate(ways[language]):
            answers = [_begun(made.choice(before) + way + made.choice(after)) for way in _evenly(said, made)]
            sets.append(AnswerSet(language, f"same {at + 1}", True, answers))
    return sets


def _evenly(values: list[str], made: random.Random) -> list[str]:
    drawn = [values[at % len(values)] for at in range(ANSWERS)]
    made.shuffle(drawn)
    return drawn


def _begun(text: str) -> str:
    return text[:1].upper() + text[1:]
