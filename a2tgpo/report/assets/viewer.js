"use strict";
// Every text from a model or a passage enters the page by textContent only.
(() => {
  const data = JSON.parse(document.getElementById("data-episodes").textContent);
  const $ = (id) => document.getElementById(id);
  const ROW = 46;
  const HIGH_GAIN = 2; // nats
  const FILTERS = {
    "all episodes": () => true,
    correct: (e) => e.em === 1,
    wrong: (e) => e.em !== 1 && e.stop === "answered",
    truncated: (e) => e.stop !== "answered" && e.stop !== "failed",
    failed: (e) => e.stop === "failed",
    "high gain": (e) => e.turns.some((t) => t.information_gain !== null && t.information_gain >= HIGH_GAIN),
    "mixed groups": () => true,
  };
  const state = { groups: [], group: 0, episode: 0, open: false };

  const el = (tag, css, text) => {
    const node = document.createElement(tag);
    if (css) node.className = css;
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const signed = (x, digits = 2) => (x === null || x === undefined ? "–" : (x >= 0 ? "+" : "−") + Math.abs(x).toFixed(digits));
  const plain = (x, digits = 2) => (x === null || x === undefined ? "–" : x.toFixed(digits));
  const probability = (nats) => {
    if (nats === null || nats === undefined) return "–";
    const p = Math.exp(nats);
    return p >= 0.001 ? p.toFixed(3) : p.toExponential(1);
  };

  const searchable = (e) => {
    if (!e.haystack) {
      const parts = [e.question, e.answer, ...e.gold, data.texts[e.closing]];
      for (const t of e.turns) parts.push(t.query, data.texts[t.context], t.tokens.map((i) => data.texts[i]).join(" "));
      e.haystack = parts.join("\n").toLowerCase();
    }
    return e.haystack;
  };

  const select = () => {
    const words = $("v-search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const kind = $("v-filter").value;
    const run = $("v-run").value;
    const step = $("v-step").value;
    const groups = new Map();
    for (const e of data.episodes) {
      if ((run !== "" && e.run !== Number(run)) || (step !== "" && String(e.step) !== step)) continue;
      const key = e.run + "/" + e.step + "/" + e.group + "/" + e.question;
      if (!groups.has(key)) groups.set(key, { run: e.run, step: e.step, question: e.question, all: [], kept: [] });
      const group = groups.get(key);
      group.all.push(e);
      if (FILTERS[kind](e) && words.every((w) => searchable(e).includes(w))) group.kept.push(e);
    }
    let found = [...groups.values()].filter((g) => g.kept.length);
    if (kind === "mixed groups") found = found.filter((g) => new Set(g.all.map((e) => e.em)).size > 1);
    state.groups = found;
    state.group = 0;
    state.episode = 0;
    state.open = false;
    const episodes = found.reduce((sum, g) => sum + g.kept.length, 0);
    const left = data.left_out ? ` (${data.left_out} more were recorded than this page holds)` : "";
    $("v-count").textContent = `${episodes} episodes in ${found.length} groups${left}`;
    $("v-space").style.height = found.length * ROW + "px";
    $("v-list").scrollTop = 0;
    drawList();
    drawGroup();
  };

  const drawList = () => {
    const list = $("v-list");
    const space = $("v-space");
    const first = Math.max(0, Math.floor(list.scrollTop / ROW) - 5);
    const last = Math.min(state.groups.length, first + Math.ceil(list.clientHeight / ROW) + 10);
    space.replaceChildren();
    for (let i = first; i < last; i++) {
      const g = state.groups[i];
      const right = g.all.filter((e) => e.em === 1).length;
      const row = el("div", "row" + (i === state.group ? " chosen" : ""));
      row.style.top = i * ROW + "px";
      row.setAttribute("role", "option");
      row.setAttribute("aria-selected", String(i === state.group));
      row.append(el("div", "name", g.question), el("div", "quiet", `${data.runs[g.run].name} · step ${g.step} · ${right} of ${g.all.length} correct`));
      row.addEventListener("click", () => choose(i));
      space.append(row);
    }
  };

  const choose = (i) => {
    if (i < 0 || i >= state.groups.length) return;
    state.group = i;
    state.episode = 0;
    state.open = false;
    $("v-main").scrollTo(0, 0);
    const list = $("v-list");
    if (i * ROW < list.scrollTop) list.scrollTop = i * ROW;
    if ((i + 1) * ROW > list.scrollTop + list.clientHeight) list.scrollTop = (i + 1) * ROW - list.clientHeight;
    drawList();
    drawGroup();
  };

  const drawGroup = () => {
    const main = $("v-main");
    main.replaceChildren();
    const g = state.groups[state.group];
    if (!g) {
      main.append(el("p", "quiet", "No episode fits the filters."));
      return;
    }
    const head = el("div", "head");
    head.append(el("h3", "", data.texts[g.all[0].turns.length ? g.all[0].turns[0].context : g.all[0].closing]));
    head.append(el("p", "quiet", `gold: ${g.all[0].gold.join(" | ")} · ${g.question} · ${data.runs[g.run].name}, step ${g.step}`));
    if (data.runs[g.run].note) head.append(el("p", "quiet", data.runs[g.run].note));
    main.append(head);
    const columns = el("div", state.open ? "columns single" : "columns");
    g.kept.forEach((e, i) => {
      if (!state.open || i === state.episode) columns.append(episode(e, i));
    });
    main.append(columns);
    const chosen = columns.querySelector(".chosen");
    if (chosen) showSideways(main, chosen);
  };

  // Only the pane moves: scrollIntoView would move the page as well, also when it opens.
  const showSideways = (pane, node) => {
    const [outer, inner] = [pane.getBoundingClientRect(), node.getBoundingClientRect()];
    if (inner.left < outer.left) pane.scrollLeft += inner.left - outer.left - 12;
    else if (inner.right > outer.right) pane.scrollLeft += Math.min(inner.right - outer.right + 12, inner.left - outer.left - 12);
  };

  const verdict = (e) => (e.em === 1 ? "✓ correct" : e.stop === "answered" ? "✗ wrong" : e.stop === "failed" ? "failed" : "truncated: " + e.stop);

  const episode = (e, i) => {
    const card = el("article", "episode" + (i === state.episode ? " chosen" : ""));
    const head = el("button", "verdict " + (e.em === 1 ? "right" : "wrong"), `${verdict(e)} · outcome ${plain(e.outcome)}`);
    head.addEventListener("click", () => {
      state.open = !(state.open && state.episode === i);
      state.episode = i;
      drawGroup();
    });
    card.append(head, el("p", "answer", e.error || "answer: " + (e.answer || "none")));
    e.turns.forEach((t, k) => card.append(turn(e, t, k)));
    const closing = data.texts[e.closing];
    if (closing && $("v-mask").checked) card.append(el("div", "masked", closing));
    return card;
  };

  const turn = (e, t, k) => {
    const box = el("section", "turn " + t.action);
    box.append(el("h4", "", `turn ${k} · ${t.action}`));
    if ($("v-mask").checked && k > 0) box.append(el("div", "masked", data.texts[t.context]));
    const line = el("div", "tokens");
    t.tokens.forEach((id, j) => line.append(token(t, id, j), document.createTextNode(" ")));
    box.append(line, numbers(e, t));
    if (state.open && t.query) box.append(el("div", "quiet", `query: ${t.query} · passages: ${t.passages.join(", ") || "none"}`));
    return box;
  };

  const token = (t, id, j) => {
    const logprob = t.logprobs[j];
    const p = logprob === null ? null : Math.exp(logprob);
    const trained = t.weight !== 0 && t.advantage !== null;
    const span = el("span", "token" + (trained ? "" : " untrained"), data.texts[id]);
    span.title = `probability ${plain(p, 3)} · advantage ${signed(t.advantage)}${trained ? "" : " · not trained"}`;
    const mode = $("v-color").value;
    if (mode === "advantage" && t.advantage) {
      const strength = Math.round(Math.min(1, Math.abs(t.advantage) / 2) * 70 + 8);
      span.style.background = `color-mix(in srgb, var(${t.advantage > 0 ? "--plus" : "--minus"}) ${strength}%, transparent)`;
    } else if (mode === "probability" && p !== null) {
      span.style.background = `color-mix(in srgb, var(--s4) ${Math.round((1 - p) * 75)}%, transparent)`;
    }
    return span;
  };

  const numbers = (e, t) => {
    const run = data.runs[e.run];
    const table = el("dl", "numbers");
    const add = (name, text, css) => table.append(el("dt", "", name), el("dd", css || "", text));
    add("gold probability", `${probability(t.value_before)} → ${probability(t.value_after)}`);
    add("gain", signed(t.information_gain));
    add("z", signed(t.z));
    add("advantage", (t.advantage > 0 ? "▲ " : t.advantage < 0 ? "▼ " : "") + signed(t.advantage), t.advantage > 0 ? "plus" : t.advantage < 0 ? "minus" : "");
    if (run.clip_low !== null && t.clip_scale !== null) {
      add("clip range", `${(1 - t.clip_scale * run.clip_low).toFixed(4)} … ${(1 + t.clip_scale * run.clip_high).toFixed(4)}`);
    } else add("clip scale", plain(t.clip_scale));
    return table;
  };

  const options = (node, entries) => {
    for (const [text, choice] of entries) {
      const option = el("option", "", text);
      option.value = choice;
      node.append(option);
    }
  };

  const keys = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") {
      event.target.blur();
      state.open = false;
      return drawGroup();
    }
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    const g = state.groups[state.group];
    const move = (by) => {
      if (!g) return;
      state.episode = Math.max(0, Math.min(g.kept.length - 1, state.episode + by));
      drawGroup();
    };
    const actions = {
      j: () => choose(state.group + 1),
      k: () => choose(state.group - 1),
      ArrowRight: () => move(1),
      ArrowLeft: () => move(-1),
      Enter: () => {
        state.open = !state.open;
        drawGroup();
      },
      "/": () => $("v-search").focus(),
      c: () => {
        $("v-color").selectedIndex = ($("v-color").selectedIndex + 1) % 3;
        drawGroup();
      },
      m: () => {
        $("v-mask").checked = !$("v-mask").checked;
        drawGroup();
      },
    };
    if (event.target.tagName === "BUTTON" && event.key === "Enter") return;
    if (actions[event.key]) {
      event.preventDefault();
      actions[event.key]();
    }
  };

  options($("v-filter"), Object.keys(FILTERS).map((name) => [name, name]));
  options($("v-run"), [["all runs", ""], ...data.runs.map((run, i) => [run.name, String(i)])]);
  options($("v-step"), [["all steps", ""], ...[...new Set(data.episodes.map((e) => e.step))].map((step) => ["step " + step, String(step)])]);
  let pending = 0;
  $("v-search").addEventListener("input", () => {
    clearTimeout(pending);
    pending = setTimeout(select, 120);
  });
  for (const id of ["v-filter", "v-run", "v-step"]) $(id).addEventListener("change", select);
  for (const id of ["v-color", "v-mask"]) $(id).addEventListener("change", drawGroup);
  $("v-list").addEventListener("scroll", drawList);
  document.addEventListener("keydown", keys);
  select();
})();
