// The table of records: rows are unpacked block by block, and only those in sight are ever in the document.
"use strict";
(() => {
  const ROW = 36, SPARE = 12, TALLEST = 12e6;
  const UNSEEN = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\u{e0000}-\u{e007f}]/gu;
  const known = JSON.parse(document.getElementById("known").textContent);
  const w = (text) => known.words?.[text] ?? text;
  const filled = (text, ...values) => text.replace(/\{(\d)\}/g, (_, at) => values[at]);
  const state = new Map(known.statuses.map(([status, look]) => [status, look]));
  const heads = [
    { title: w("Id"), at: 1, kind: "text", look: "id" },
    { title: w("Status"), at: 2, kind: "text", look: "slim" },
    ...known.columns.map((column, i) => ({ ...column, title: w(column.title), at: 5 + i })),
    { title: w("Reason"), at: 4, kind: "text", look: "wide" },
    { title: w("Record"), at: 0, kind: "text" },
  ];
  const answered = 5 + known.columns.length, caseAt = known.columns.findIndex((c) => c.title === "Case");
  const columns = Array.from({ length: answered + (known.answers ? 1 : 0) }, () => []);
  let order = [], texts = null, sorted = null, down = false, only = null;

  const make = (name, attributes = {}, ...children) => {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  };
  const shown = (value) => String(value).replace(UNSEEN, "\ufffd");
  const number = new Intl.NumberFormat("en", { maximumFractionDigits: 3 });
  const cell = (value, kind) => {
    if (value === null || value === undefined || value === "") return "–";
    if (kind === "share") return (100 * value).toFixed(1) + " %";
    return kind === "number" ? number.format(value) : shown(value);
  };

  async function unpack(node) {
    const packed = atob(node.textContent), bytes = new Uint8Array(packed.length);
    for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).json();
  }

  // What is fixed of the table: the controls, the head, and a body between two gaps.
  const search = make("input", { type: "search", autocomplete: "off" });
  const pick = make("select", {}, make("option", { value: "" }, filled(w("All ({0})"), number.format(known.kept))));
  if (known.failed) pick.append(make("option", { value: "failed" }, filled(w("Failed or undecided ({0})"), number.format(known.failed))));
  for (const [status, , count] of known.statuses)
    pick.append(make("option", { value: "=" + status }, filled(w("{0} ({1} in the run)"), shown(status), number.format(count))));
  const count = make("p", { class: "count", role: "status" });
  const body = make("tbody"), head = make("tr");
  const table = make(
    "table", {}, make("caption", { class: "unseen" }, w("Records")),
    make("colgroup", {}, ...heads.map((h) => make("col", { class: h.look ?? (h.kind === "text" ? "" : "slim") }))), make("thead", {}, head), body);
  const view = make("div", { id: "window", tabindex: "0", role: "group", "aria-label": w("Table of records") }, table);
  const dialog = make("dialog", { "aria-labelledby": "record-title" });
  for (const h of heads) {
    h.cell = make("th", { scope: "col", class: h.kind === "text" ? "" : "n" }, make("button", { type: "button" }, h.title));
    h.cell.firstChild.addEventListener("click", () => sortBy(h));
    head.append(h.cell);
  }
  document.getElementById("table").append(
    make("div", { class: "controls" }, make("label", {}, w("Search"), search), make("label", {}, w("Show"), pick)), count, view, dialog);

  // A link to a case shows its records, and no others whose names begin alike.
  function about(row) {
    const id = columns[1][row] || columns[0][row];
    return id === only || id.startsWith(only + "#") || (caseAt >= 0 && columns[5 + caseAt][row] === only);
  }

  function follow() {
    const found = /^#case=(.*)$/.exec(location.hash);
    if (!found) return;
    try { only = decodeURIComponent(found[1]); } catch { return; }
    search.value = shown(only);
    pick.value = "";
    view.scrollTop = 0;
    select();
    document.getElementById("table").scrollIntoView();
    if (order.length === 1) show(order[0]);
  }

  function select() {
    const wanted = search.value.trim().toLowerCase(), choice = pick.value, statuses = columns[2];
    if (wanted && (!texts || texts.length !== statuses.length)) {
      const searched = [0, 1, 4, ...known.columns.flatMap((c, i) => (c.kind === "text" ? [5 + i] : []))];
      texts = statuses.map((_, row) => searched.map((at) => columns[at][row] ?? "").join("\n").toLowerCase());
    }
    order = [];
    for (let row = 0; row < statuses.length; row++) {
      const look = state.get(statuses[row]);
      if (choice === "failed" ? look !== "bad" && look !== "doubtful" : choice && statuses[row] !== choice.slice(1)) continue;
      if (only !== null ? about(row) : !wanted || texts[row].includes(wanted)) order.push(row);
    }
    if (sorted) {
      const values = columns[sorted.at], sign = down ? -1 : 1;
      // What has no value stands last, whichever way the others are sorted.
      order.sort((a, b) => {
        const x = values[a], y = values[b], none = (x === null || x === "") - (y === null || y === "");
        return none || (x < y ? -sign : x > y ? sign : a - b);
      });
    }
    count.textContent = filled(w("{0} of {1} records"), number.format(order.length), number.format(known.kept));
    table.setAttribute("aria-rowcount", order.length + 1);
    draw();
  }

  function sortBy(h) {
    down = sorted === h ? !down : false;
    sorted?.cell.removeAttribute("aria-sort");
    for (const other of heads) other.cell.firstChild.textContent = other.title;
    sorted = h;
    h.cell.setAttribute("aria-sort", down ? "descending" : "ascending");
    h.cell.firstChild.textContent = `${h.title} ${down ? "↓" : "↑"}`;
    view.scrollTop = 0;
    select();
  }

  const gap = (height) => {
    const inner = make("td", { colspan: heads.length });
    inner.style.height = height + "px";
    return make("tr", { class: "gap", "aria-hidden": "true" }, inner);
  };

  function draw() {
    // Browsers do not make a page taller than some: beyond that, scrolling is a share of the rows.
    const height = order.length * ROW, squeeze = Math.max(1, height / TALLEST);
    const first = Math.max(0, Math.floor((view.scrollTop * squeeze) / ROW) - SPARE);
    const rows = order.slice(first, first + Math.ceil(view.clientHeight / ROW) + 2 * SPARE);
    const above = squeeze > 1 ? Math.max(0, view.scrollTop - SPARE * ROW) : first * ROW;
    const focus = document.activeElement?.dataset?.row;
    body.replaceChildren(
      gap(above), ...rows.map((row, i) => line(row, first + i)),
      gap(Math.max(0, height / squeeze - above - rows.length * ROW)));
    if (focus) body.querySelector(`[data-row="${focus}"]`)?.focus({ preventScroll: true });
  }

  function line(row, place) {
    const cells = heads.map((h, i) => {
      const value = columns[h.at][row];
      if (i === 0) {
        const name = value || columns[0][row];
        const open = make("button", { type: "button", "data-row": row, "aria-haspopup": "dialog" }, shown(name));
        open.addEventListener("click", () => show(row));
        return make("th", { scope: "row", dir: "auto" }, open);
      }
      const text = cell(value, h.kind);
      if (h.at === 2) return make("td", {}, make("span", { class: `status ${state.get(value) ?? "none"}` }, text));
      return make("td", h.kind === "text" ? { dir: "auto", title: text } : { class: "n" }, text);
    });
    return make("tr", { "aria-rowindex": place + 2 }, ...cells);
  }

  const packed = [...document.querySelectorAll("script.answers")];
  async function answer(at) {
    const block = Math.floor(at / 500);
    if (!opened.has(packed[block])) opened.set(packed[block], unpack(packed[block]));
    return (await opened.get(packed[block]))[at % 500];
  }

  const scripts = [["ko", /[\uac00-\ud7a3]/g], ["ja", /[\u3041-\u30ff]/g]];
  function said(text) {
    const node = passage(text), start = text.slice(0, 2000), letters = (start.match(/\p{L}/gu) ?? []).length;
    const found = scripts.find(([, script]) => (start.match(script) ?? []).length * 4 > letters);
    if (found) node.lang = found[0];
    return node;
  }
  const passage = (text) => make("div", text.length > 1500 || text.split("\n").length > 26
    ? { class: "said long", dir: "auto", tabindex: "0", role: "group", "aria-label": w("Text") } : { class: "said", dir: "auto" }, shown(text));
  const outcome = (came, failed) => came ? [make("p", { class: "role" }, failed ? w("Error") : w("Result")),
    make("pre", { tabindex: "0", ...(failed ? { class: "fault" } : {}) }, shown(came))] : [];
  const calls = (made) => make("ol", { class: "tools" }, ...made.map(([name, given, came, failed]) =>
    make("li", {}, make("code", { dir: "auto" }, shown(name)), make("pre", { tabindex: "0" }, shown(given)), ...outcome(came, failed))));
  function told([asked, text, error, tools, took, talk]) {
    const parts = [];
    if (asked.length) {
      parts.push(make("h3", {}, w("Question")));
      for (const [role, content] of asked) parts.push(...(role ? [make("p", { class: "role" }, shown(role))] : []), said(content));
    }
    parts.push(make("h3", {}, w("Answer")));
    if (error) parts.push(make("p", { class: "fault", dir: "auto" }, w("No usable answer: ") + shown(error)));
    if (text || !error) parts.push(said(text));
    if (tools.length) parts.push(make("p", { class: "role" }, w("Tool calls")), calls(tools));
    if (talk.length) parts.push(make("details", { class: "conversation" }, make("summary", {}, w("Conversation")),
      ...talk.map(([role, content, made]) => make("div", { class: "message" }, make("p", { class: "role" }, shown(role)),
        ...(content ? [said(content)] : []), ...(made.length ? [calls(made)] : [])))));
    parts.push(make("dl", { class: "took" }, ...took.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, shown(value))))));
    return parts;
  }

  const explained = [...document.querySelectorAll("script.evidence")];
  const opened = new Map();
  async function evidence(at) {
    const block = Math.floor(at / 500);
    if (!opened.has(block)) opened.set(block, unpack(explained[block]));
    return (await opened.get(block))[at % 500];
  }

  async function show(row) {
    const status = columns[2][row], at = columns[3][row];
    const facts = make("dl", { class: "facts" });
    for (const h of heads) facts.append(make("dt", {}, h.title), make("dd", { dir: "auto" }, cell(columns[h.at][row], h.kind)));
    const parts = [make("h2", { id: "record-title", dir: "auto", tabindex: "-1", autofocus: "" }, shown(columns[1][row] || columns[0][row])), facts];
    if (known.answers && columns[answered][row] >= 0) parts.push(...told(await answer(columns[answered][row])));
    if (at >= 0) {
      const rows = (await evidence(at)).map(([what, expected, came, fine]) =>
        make("tr", { class: fine ? "fine" : "unmet" }, make("th", { scope: "row", dir: "auto" }, shown(what)),
          make("td", { dir: "auto", "data-label": w("Expected") }, cell(expected, "text")),
          make("td", { dir: "auto", "data-label": w("Actual") }, cell(came, "text"))));
      const top = make("tr", {}, ...[w("Check"), w("Expected"), w("Actual")].map((name) => make("th", { scope: "col" }, name)));
      const caption = make("caption", { class: "unseen" }, w("Expected and actual values"));
      parts.push(make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": w("Expected and actual values") },
        make("table", { class: "compared" }, caption, make("thead", {}, top), make("tbody", {}, ...rows))));
    } else if (["bad", "doubtful"].includes(state.get(status))) {
      parts.push(make("p", { class: "caption" }, w("The expected and actual values are in records.jsonl.")));
    }
    parts.push(make("form", { method: "dialog" }, make("button", {}, w("Close"))));
    dialog.replaceChildren(...parts);
    dialog.showModal();
  }

  let waiting = false;
  const soon = (work) => () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; work(); });
  };
  view.addEventListener("scroll", soon(draw), { passive: true });
  addEventListener("resize", soon(draw));
  addEventListener("hashchange", follow);
  search.addEventListener("input", () => { only = null; view.scrollTop = 0; select(); });
  pick.addEventListener("change", () => { only = null; view.scrollTop = 0; select(); });

  (async () => {
    if (known.failed) pick.value = "failed";
    let drawn = false;
    for (const node of document.querySelectorAll("script.rows")) {
      const block = await unpack(node);
      block.forEach((values, at) => { for (const value of values) columns[at].push(value); });
      node.remove();
      if (!drawn) select();
      drawn = true;
    }
    select();
    follow();
    document.documentElement.dataset.ready = "yes";
  })();
})();
