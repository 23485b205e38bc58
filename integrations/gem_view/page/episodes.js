"use strict";
// The list of a run's episodes, of which only the visible rows exist, and one episode.
(function () {
  const { el } = gem;
  const PAGE = 200;
  const TALLEST = 15e6;  // browsers limit the height of an element; beyond it, rows share pixels
  const COLUMNS = [["id", "line"], ["step", "step"], ["split", "split"], ["env", "environment"], ["seed", "seed"],
    ["idx", "index"], ["turns", "turns"], ["reward", "reward"], ["success", "success"], ["stop", "stop reason"],
    ["tokens", "tokens"]];
  const MAJOR = new Set(["id", "env", "reward", "success", "stop"]);
  const NUMBERS = new Set(["step", "seed", "idx", "turns", "reward", "tokens"]);
  const settings = { colouring: "none" };
  gem.tokenSettings = settings;

  class EpisodeList {
    constructor(run, options) {
      this.run = run;
      this.options = options;
      this.total = 0;
      this.selected = 0;
      this.pages = new Map();
      this.space = el("div", { className: "space" });
      this.scroller = el("div", { className: "scroll", tabindex: "0", role: "grid", "aria-label": "episodes",
        on: { scroll: () => this.draw() } }, this.space);
      this.status = el("p", { className: "soft", id: "count", role: "status" });
      this.head = el("div", { className: "listhead" });
      this.node = el("div", {}, this.status, el("div", { className: "list" }, this.head, this.scroller));
      this.drawHead();
      new ResizeObserver(() => this.draw()).observe(this.scroller);
    }

    drawHead() {
      gem.show(this.head, COLUMNS.map(([name, text]) => {
        const active = (this.options.sort || "id") === name;
        const arrow = active ? (this.options.order === "desc" ? " ↓" : " ↑") : "";
        return el("button", { type: "button", className: MAJOR.has(name) ? "" : "minor", title: `sort by ${text}`,
          "data-sort": name, on: { click: () => this.sort(name) } }, text + arrow);
      }));
    }

    sort(name) {
      const again = (this.options.sort || "id") === name;
      this.ask({ ...this.options, sort: name, order: again && this.options.order !== "desc" ? "desc" : "asc" });
    }

    ask(options) {
      this.options = options;
      const address = gem.address(`run/${this.run}/episodes`, options);
      history.replaceState(null, "", address);
      this.selected = 0;
      this.scroller.scrollTop = 0;
      this.drawHead();
      return this.reload();
    }

    async reload() {
      this.generation = (this.generation || 0) + 1;
      const begun = this.generation;
      const answer = await this.fetch(0);
      if (begun !== this.generation) return;
      this.pages = new Map([[0, answer.rows]]);
      this.columns = answer.columns;
      this.total = answer.total;
      this.waiting = answer.bytes - answer.indexed_bytes > 4e6;  // less is an unfinished line
      const share = this.waiting ? `, indexed ${Math.floor((100 * answer.indexed_bytes) / answer.bytes)} %` : "";
      const partial = answer.complete ? "" : " (the search did not reach the end of the file)";
      gem.show(this.status, `${answer.total.toLocaleString("en-US")} of ${answer.episodes.toLocaleString("en-US")} episodes${share}${partial}`);
      this.draw();
    }

    fetch(page) {
      return gem.get("episodes", { ...this.options, run: this.run, offset: page * PAGE });
    }

    get rowHeight() {
      return window.matchMedia("(max-width: 760px)").matches ? 56 : 32;
    }

    layout() {
      const height = this.total * this.rowHeight;
      const visible = this.scroller.clientHeight;
      const shown = Math.min(height, TALLEST);
      this.space.style.height = `${shown}px`;
      const ratio = shown > visible ? (height - visible) / (shown - visible) : 1;
      return { visible, ratio, top: this.scroller.scrollTop };
    }

    draw() {
      const { visible, ratio, top } = this.layout();
      const offset = top * ratio;
      const first = Math.max(0, Math.floor(offset / this.rowHeight) - 5);
      const last = Math.min(this.total, Math.ceil((offset + visible) / this.rowHeight) + 5);
      const rows = [];
      for (let k = first; k < last; k += 1) rows.push(this.row(k, top + k * this.rowHeight - offset));
      gem.show(this.space, rows);
    }

    row(k, place) {
      const page = Math.floor(k / PAGE);
      const data = this.pages.get(page);
      if (data === undefined) this.need(page);
      const values = Array.isArray(data) ? data[k % PAGE] : null;
      const cells = values ? this.cells(values) : [el("span", { className: "soft" }, "…")];
      return el("div", { className: k === this.selected ? "row selected" : "row", role: "row", "data-row": k,
        style: { top: `${place}px` }, on: { click: () => this.open(k) } }, cells);
    }

    cells(values) {
      const at = Object.fromEntries(this.columns.map((name, k) => [name, values[k]]));
      return COLUMNS.map(([name]) => {
        const names = `${name} ${NUMBERS.has(name) ? "number" : ""} ${MAJOR.has(name) ? "" : "minor"}`;
        const link = name === "id" ? gem.link(at.id, `run/${this.run}/episode/${at.id}`, {}, { tabIndex: -1 }) : null;
        const shown = name === "success" ? gem.yesNo(at.success) : gem.number(at[name]);
        return el("span", { className: names, role: "gridcell", title: String(at[name] ?? "") }, link || shown);
      });
    }

    async need(page) {
      this.pages.set(page, "asked");
      const begun = this.generation;
      const answer = await this.fetch(page);
      if (begun !== this.generation) return;
      this.pages.set(page, answer.rows);
      if (this.pages.size > 60) this.pages.delete(this.pages.keys().next().value);
      this.draw();
    }

    open(k) {
      const data = this.pages.get(Math.floor(k / PAGE));
      if (Array.isArray(data) && data[k % PAGE]) location.hash = gem.address(`run/${this.run}/episode/${data[k % PAGE][0]}`);
    }

    move(by) {
      this.selected = Math.max(0, Math.min(this.total - 1, this.selected + by));
      const { visible, ratio, top } = this.layout();
      const place = this.selected * this.rowHeight;
      if (place < top * ratio) this.scroller.scrollTop = place / ratio;
      else if (place + this.rowHeight > top * ratio + visible) this.scroller.scrollTop = (place + this.rowHeight - visible) / ratio;
      this.draw();
    }
  }

  gem.pages.episodes = async function (main, options, number) {
    const run = await gem.get("run", { run: number });
    const list = new EpisodeList(number, { ...options });
    gem.show(main, el("h1", {}, "Episodes of ", gem.link(run.name, `run/${number}`)), filters(list, run.episodes.choices), list.node,
      gem.exported ? el("p", { className: "soft" }, `This file has the last ${gem.limits.episodes} episodes of each run.`) : null);
    await list.reload();
    let timer = null;
    const poll = async () => {
      if (list.waiting) await list.reload();
      timer = setTimeout(poll, 1000);
    };
    timer = setTimeout(poll, 1000);
    return {
      title: `${run.name}: episodes`, run: Number(number), changed: () => list.reload(), leave: () => clearTimeout(timer),
      keys: { j: () => list.move(1), k: () => list.move(-1), ArrowDown: () => list.move(1), ArrowUp: () => list.move(-1),
        PageDown: () => list.move(15), PageUp: () => list.move(-15), Home: () => list.move(-list.total), End: () => list.move(list.total),
        Enter: () => list.open(list.selected) },
    };
  };

  function filters(list, choices) {
    let timer = null;
    const change = (name, value) => list.ask({ ...list.options, [name]: value });
    const choose = (name, values) => gem.select([["", "all"], ...values], list.options[name] || "", (value) => change(name, value));
    const typed = (name, properties) => el("input", { ...properties, name, value: list.options[name] || "", on: { input: (event) => {
      clearTimeout(timer);
      timer = setTimeout(() => change(name, event.target.value), 250);
    } } });
    const bounds = (name) => gem.field(`${name} from, to`, el("span", {},
      typed(`${name}_min`, { type: "number", step: "any", "aria-label": `${name} at least` }), " ",
      typed(`${name}_max`, { type: "number", step: "any", "aria-label": `${name} at most` })));
    const clear = el("button", { type: "button", on: { click: () => {
      location.hash = gem.address(`run/${list.run}/episodes`, { sort: "id" });
    } } }, "Clear");
    return el("div", { className: "bar", id: "filters" },
      gem.field("Text in the episode (/)", typed("text", { type: "search", id: "filter" })),
      gem.field("Split", choose("split", choices.split)), gem.field("Environment", choose("env", choices.env)),
      gem.field("Success", choose("success", [["1", "yes"], ["0", "no"]])), gem.field("Stop reason", choose("stop", choices.stop)),
      ["reward", "step", "turns", "tokens"].map(bounds),
      gem.field("Seed", typed("seed", { type: "number" })), clear);
  }

  // -- one episode

  gem.pages.episode = async function (main, options, number, id) {
    const [run, answer] = await Promise.all([gem.get("run", { run: number }), gem.get("episode", { run: number, id })]);
    const { record, pieces } = answer;
    const turns = el("div", {});
    const legend = el("span", { className: "soft" });
    let current = 0;

    function draw() {
      gem.show(legend, gem.legendOf(record, settings.colouring));
      const views = record.turns.map((turn, k) => turnView(record, pieces, turn, k));
      gem.show(turns, foldedTurns(record, views), endView(record), tokensView(record, pieces));
      mark(current, false);
    }
    function mark(k, scroll = true) {
      const all = turns.querySelectorAll(".turn");
      current = Math.max(0, Math.min(all.length - 1, k));
      all.forEach((turn, number) => turn.classList.toggle("current", number === current));
      if (!scroll || !all[current]) return;
      const fold = all[current].closest("details.fold");
      if (fold) fold.open = true;
      all[current].scrollIntoView({ block: "start" });
    }
    const go = (to) => to && (location.hash = gem.address(`run/${number}/episode/${to}`));
    const side = (text, to) => el("button", { type: "button", disabled: !to, on: { click: () => go(to) } }, text);
    const colouring = gem.select(gem.COLOURINGS, settings.colouring, (kind) => {
      settings.colouring = kind;
      draw();
    });
    colouring.id = "colouring";
    gem.show(main, el("h1", {}, "Episode ", String(answer.id), " of ", gem.link(run.name, `run/${number}`)),
      el("div", { className: "bar" }, side("← previous (p)", answer.previous), side("next (n) →", answer.next),
        gem.link("list", `run/${number}/episodes`), sameTask(record, number), gem.field("Token colours (c)", colouring), legend),
      episodeFacts(record), answer.note ? el("p", { className: "soft" }, `No texts of tokens: ${answer.note}`) : null, turns);
    draw();
    return {
      title: `${run.name}: episode ${id}`, run: Number(number),
      keys: { n: () => go(answer.next), p: () => go(answer.previous), j: () => mark(current + 1), k: () => mark(current - 1),
        c: () => {
          const kinds = gem.COLOURINGS.map(([kind]) => kind);
          settings.colouring = kinds[(kinds.indexOf(settings.colouring) + 1) % kinds.length];
          colouring.value = settings.colouring;
          draw();
        } },
    };
  };

  function sameTask(record, number) {
    if (record.index < 0) return null;
    return gem.link("same task in other runs", "compare", { with: number, step: record.step, split: record.split, idx: record.index });
  }

  function episodeFacts(record) {
    const reward = record.turns.reduce((sum, turn) => sum + turn.reward, 0);
    const sampled = (record.segments || []).flatMap((s) => s.spans).reduce((sum, [, start, end]) => sum + end - start, 0);
    const seconds = Object.entries(record.seconds || {}).map(([name, value]) => `${name} ${gem.number(value)}`).join(", ");
    return gem.facts([["environment", record.env_id], ["seed", gem.number(record.seed)], ["step", record.step], ["split", record.split],
      ["group", record.group], ["index", record.index], ["stop reason", record.stop_reason], ["success", gem.yesNo(record.success)],
      ["total reward", gem.number(reward)], ["turns", record.turns.filter((turn) => turn.kind !== "summary").length], ["action tokens", sampled], ["seconds", seconds],
      ["error", record.error ? el("span", { className: "bad" }, record.error) : null]]);
  }

  // The turns before a summary are folded: from there on the policy reads the summary in their place.
  function foldedTurns(record, views) {
    const parts = [];
    let first = 0;
    record.turns.forEach((turn, k) => {
      if (turn.kind !== "summary") return;
      const title = k > first + 1 ? `Turns ${first + 1} to ${k}, summed up below` : `Turn ${k}, summed up below`;
      parts.push(el("details", { className: "fold" }, el("summary", {}, title), views.slice(first, k)), views[k]);
      first = k + 1;
    });
    return [...parts, ...views.slice(first)];
  }

  function turnView(record, pieces, turn, k) {
    const info = { ...turn.info };
    const suffix = info.suffix;
    delete info.suffix;
    const tools = Array.isArray(info.tools) ? info.tools : info.tool ? [info.tool] : [];
    const flags = [["summary", turn.kind === "summary"], ["terminated", turn.terminated], ["truncated", turn.truncated], ["not trained on", turn.aborted],
      ["cut at the token cap", turn.finish_reason === "length"], ["generation aborted", turn.finish_reason === "abort"]];
    const advantage = gem.advantages(record) ? gem.advantages(record)[k] : null;
    // The state that the policy saw is the observation with the suffix of the turn before.
    return el("article", { className: "turn", id: `turn${k}` },
      el("header", {}, el("h3", {}, `Turn ${k + 1}`),
        el("span", {}, "reward ", el("b", { className: turn.reward > 0 ? "good" : turn.reward < 0 ? "bad" : "" }, gem.number(turn.reward))),
        advantage === null || advantage === undefined ? null : el("span", {}, "advantage ", el("b", {}, gem.number(advantage))),
        flags.filter(([, on]) => on).map(([text]) => el("span", { className: "chip" }, text)),
        info.error ? el("span", { className: "chip bad" }, String(info.error)) : null),
      part("observation", turn.observation),
      actionPart(record, pieces, turn, k),
      tools.length ? tools.map((tool) => part("tool call", tool === null ? "none" : typeof tool === "string" ? tool : JSON.stringify(tool, null, 1))) : null,
      suffix ? part("shown after the action", suffix) : null,
      Object.keys(info).length ? el("details", { className: "part" }, el("summary", {}, "info"), el("pre", {}, JSON.stringify(info, null, 1))) : null);
  }

  const part = (name, text) => el("div", { className: "part" }, el("div", { className: "name" }, name), el("pre", {}, String(text)));

  function actionPart(record, pieces, turn, k) {
    const place = gem.spans(record)[k];
    const asTokens = place && settings.colouring !== "none";
    const content = asTokens
      ? gem.tokenSpans(record, pieces, place.segment, place.start, place.end, settings)
      : turn.action === "" ? el("span", { className: "soft" }, "(empty)") : turn.action;
    const count = place ? `, ${place.end - place.start} tokens` : "";
    return el("div", { className: "part action" }, el("div", { className: "name" }, `action${count}`),
      el("pre", { className: asTokens ? "tokens" : "" }, content));
  }

  function endView(record) {
    return el("article", { className: "end" }, el("header", {}, el("h3", {}, "End"), el("span", {}, record.stop_reason), gem.yesNo(record.success)),
      part("last observation", record.final_observation || ""));
  }

  function tokensView(record, pieces) {
    return (record.segments || []).map((segment, number) => el("details", { className: "part" },
      el("summary", {}, `Tokens${record.segments.length > 1 ? ` of segment ${number + 1}` : ""} (${segment.token_ids.length})`),
      gem.segmentView(record, pieces, number, settings)));
  }
})();
