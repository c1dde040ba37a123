"""Checks of text in other languages than English: refusals, numbers, words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.evaluators.checks.answer import CheckedAnswer
from evalq.evalcore.evaluators.checks.cases import load_cases
from evalq.evalcore.evaluators.checks.check import compile_check
from evalq.evalcore.evaluators.checks.vocabulary.declaring import BadCheck
from evalq.evalcore.evaluators.checks.vocabulary.similar import rouge_l, token_f1

REFUSALS = """
I can't help with that.
I'm sorry, but I can't share personal data.
As an AI, I have no opinion on this and must decline.
As an AI language model, I am not able to browse.
I am unable to assist with this request.
Sorry, I can’t do that.
I will not provide instructions for this.
죄송하지만 그 요청은 도와드릴 수 없습니다.
죄송합니다만, 개인 정보는 알려드릴 수 없습니다.
해당 질문에는 답변드릴 수 없습니다.
그 부분은 답변할 수 없어요.
이 정보는 제공해 드릴 수 없습니다.
그런 요청에는 응할 수 없습니다.
申し訳ありませんが、そのご要望にはお応えできません。
申し訳ございませんが、個人情報はお伝えできません。
その内容にはお答えできません。
この質問には回答できません。
その作業はお手伝いできません。
そのようなご依頼に応じることはできません。
Je suis désolé, mais je ne peux pas vous aider.
Désolée, mais je ne peux répondre à cette demande.
Je ne peux pas répondre à cette question.
Je ne suis pas en mesure de fournir ces données.
Je ne peux pas fournir d’instructions.
Il m’est impossible de traiter cette demande.
Lo siento, pero no puedo ayudarte con eso.
No puedo proporcionar información personal.
Lamentablemente no puedo responder a esa pregunta.
No puedo cumplir con esta solicitud.
Me temo que no puedo hacerlo.
Lo lamento, pero eso no es posible.
Es tut mir leid, aber dabei kann ich nicht helfen.
Ich kann Ihnen dabei nicht helfen.
Leider kann ich diese Frage nicht beantworten.
Ich kann darauf nicht antworten.
Ich bin nicht in der Lage, das zu tun.
Das kann ich leider nicht beantworten.
""".strip().splitlines()
ANSWERS = """
As an airline, we allow one bag.
As an aircraft mechanic, you need a licence.
As an aid to memory, write it down.
As an Airbus pilot, she flies daily.
You can't return opened goods.
Yes, I can help with that.
The server cannot be reached from outside.
수도는 서울입니다.
네, 도와드릴 수 있습니다.
환불은 7일 안에 할 수 있습니다.
열린 상품은 반품할 수 없습니다.
물론입니다. 바로 안내해 드리겠습니다.
首都は東京です。
はい、お手伝いできます。
開封後の返品はできません。
七日以内に返金されます。
ご質問にお答えします。
La capitale est Paris.
Oui, je peux vous aider.
Les articles ouverts ne peuvent pas être retournés.
Vous ne pouvez pas annuler après sept jours.
Je peux répondre à cette question : oui.
La capital es Madrid.
Sí, puedo ayudarte.
Los artículos abiertos no se pueden devolver.
Usted no puede cancelar después de siete días.
Puedo responder a esa pregunta: sí.
Die Hauptstadt ist Berlin.
Ja, ich kann Ihnen helfen.
Geöffnete Ware kann nicht zurückgegeben werden.
Sie können nach sieben Tagen nicht stornieren.
Ich kann keine Fehler finden, alles stimmt.
""".strip().splitlines()


def _said(check: dict[str, Any], text: Any) -> bool | None:
    return compile_check(check).judge(CheckedAnswer(text)).passed


@pytest.mark.parametrize("text", REFUSALS)
def test_a_refusal_is_one_in_each_language(text: str) -> None:
    """Made by hand, in the words of models: English, Korean, Japanese, French, Spanish, German."""
    assert _said({"refusal": True}, text) is True


@pytest.mark.parametrize("text", ANSWERS)
def test_an_answer_is_no_refusal(text: str) -> None:
    """Nor what somebody else cannot do, nor a word that begins like AI."""
    assert _said({"refusal": True}, text) is False


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1\u202f234\u202f567 people", 1234567),
        ("1\u00a0234,5", 1234),
        ("1\u2009234.5 m", 1234.5),
        ("1\u2007234", 1234),
        ("CHF 1'234'567.50", 1234567.5),
        ("CHF 1\u2019234", 1234),
        ("it is \u20135 °C", -5),
        ("it is \u22125 °C", -5),
        ("\uff0d\uff15度", -5),
        ("合計\uff11\uff12\uff13\uff14円", 1234),
        ("\uff11\uff0c\uff12\uff13\uff14円", 1234),
        ("\uff13\uff0e\uff15", 3.5),
        ("\u0663\u066b\u0665", 3.5),
        ("\u0967\u0968", 12),
    ],
)
def test_numbers_as_people_write_them(text: str, number: float) -> None:
    """Spaces that do not break and apostrophes between groups of three; dashes as signs; digits of other scripts."""
    assert _said({"number": number}, text) is True


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("pages 3\u20135", -5),
        ("pages 3\u22125", -5),
        ("5'11 tall", 511),
        ("12\u00a034", 1234),
        ("1\u202f2345", 12345),
        ("in 2024\u00a0123 people", 2024123),
        ("1'234\u202f567", 1234567),
        ("1 234", 1234),
    ],
)
def test_what_is_no_such_number(text: str, number: float) -> None:
    """A range, other groups, two kinds of separators, a space that breaks."""
    assert _said({"number": number}, text) is False


def test_a_decimal_comma_where_it_is_asked_for() -> None:
    """3,5 is three and a half, and points set groups off."""
    check = {"number": 1234.5, "decimal-comma": True}
    for text in ("1.234,5 Euro", "1\u202f234,5", "1234,5", "1'234,50"):
        assert _said(check, text) is True
    for text in ("1,234.5", "12345"):
        assert _said(check, text) is False
    assert _said({"number": "1.234,50", "decimal-comma": True}, "1234,5") is True


def test_a_number_of_a_spreadsheet_is_a_number(tmp_path: Path) -> None:
    """A cell is text; one that is no number is refused."""
    cases = "defaults: {checks: [{number: '{{expected}}'}]}\ncases: [{file: rows.csv}]\n"
    (tmp_path / "cases.yaml").write_text(cases)
    (tmp_path / "rows.csv").write_text('id,expected\na,42\nb,"1,234.5"\nc,\u22127\nd,\uff11\uff12\n')
    wanted = [case.params["checks"][0]["number"] for case in load_cases([tmp_path / "cases.yaml"])]
    for text, answer in zip(wanted, ["42", "1234.5", "-7", "12"], strict=True):
        assert _said({"number": text}, f"It is {answer}.") is True
        assert _said({"number": text}, "It is 99.") is False
    for wrong in ("", "many", "12 or 13", "12 %", "1-2"):
        with pytest.raises(BadCheck, match="expected a number"):
            compile_check({"number": wrong})


def test_marks_belong_to_words() -> None:
    """की is another word than का, and a decomposed é is one letter."""
    for measure in (rouge_l, token_f1):
        assert measure("राम की", "राम का") == 0.5
        assert measure("cafe\u0301 noir", "cafe\u0301 blanc") == 0.5
        assert measure("한국어 단어", "한국어 문장") == 0.5
    for name in ("rouge-l", "token-f1"):
        assert _said({name: "caf\u00e9", "threshold": 1}, "cafe\u0301") is False
        assert _said({name: "caf\u00e9", "threshold": 1, "normalize": "nfc"}, "cafe\u0301") is True


@pytest.mark.parametrize(
    ("one", "other", "f1"),
    [
        ("北京是首都", "上海是首都。", 3 / 5),
        ("東京です", "京都です。", 3 / 4),
        ("กาแฟ", "กาเฟ", 3 / 4),
        ("กาแฟ", "ชา", 1 / 3),
    ],
)
def test_text_without_spaces_is_cut_by_character(one: str, other: str, f1: float) -> None:
    """Chinese, Japanese, Thai: so some of an answer can be right, and punctuation does not count."""
    assert token_f1(one, other) == pytest.approx(f1)
    assert rouge_l(one, one) == token_f1(one, one) == 1.0
    assert 0 < rouge_l(one, other) < 1
