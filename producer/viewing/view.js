// Runs that still go: what is shown of them is asked for again, and the page is loaded anew when one has ended.
"use strict";
(() => {
  const shown = [...document.querySelectorAll("[data-run]")];
  if (!shown.length) return;
  const home = document.querySelector(".pages a").href;
  const keys = shown.map((node) => ["run", node.dataset.run]);
  const UNSEEN = /[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\u{e0000}-\u{e007f}]/gu;
  const say = (node, text) => { if (node && node.textContent !== text) node.textContent = text.replace(UNSEEN, "\ufffd"); };

  async function look() {
    let told;
    try {
      const answer = await fetch(home + "live?" + new URLSearchParams(keys));
      if (!answer.ok) return;
      told = await answer.json();
    } catch {
      return; // the viewer has ended; what is on the page stays readable
    }
    for (const node of shown) {
      const now = told[node.dataset.run];
      if (!now || !now.going) { location.reload(); return; }
      say(node.querySelector("[data-said=line]"), now.line);
      const bar = node.querySelector("progress");
      if (bar && now.share !== null) bar.value = now.share;
      for (const [name, value] of now.facts)
        say([...node.querySelectorAll("[data-fact]")].find((each) => each.dataset.fact === name), value);
    }
    setTimeout(look, 2000);
  }
  setTimeout(look, 1000);
})();
