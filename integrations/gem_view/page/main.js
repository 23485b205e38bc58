"use strict";
// Addresses, keys, dark and light, and following runs that are being trained.
(function () {
  const { el } = gem;
  const FOLLOW_MS = 2000;
  const main = document.getElementById("main");
  const live = document.getElementById("live");
  const keys = document.getElementById("keys");
  let page = {};
  let visit = 0;
  let before = null;

  const KEYS = [["/", "to the filter"], ["j k", "next, previous row or turn"], ["Enter", "open the row"],
    ["n p", "next, previous episode"], ["c", "next token colours"], ["u", "up"], ["g", "to the runs"], ["t", "dark or light"],
    ["+ - 0 ← →", "in a curve: zoom, whole range, move"], ["Esc", "leave a field"], ["?", "these keys"]];

  function parse() {
    const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
    const parts = path.split("/").filter(Boolean);
    return { parts, options: Object.fromEntries(new URLSearchParams(query || "")) };
  }

  function target(parts) {
    if (parts.length === 0) return ["runs"];
    if (parts[0] === "compare") return ["compare"];
    if (parts[0] === "run" && parts.length === 2) return ["run", parts[1]];
    if (parts[0] === "run" && parts[2] === "episodes") return ["episodes", parts[1]];
    if (parts[0] === "run" && parts[2] === "episode") return ["episode", parts[1], parts[3]];
    return null;
  }

  async function open() {
    const turn = (visit += 1);
    const { parts, options } = parse();
    const found = target(parts);
    if (page.leave) page.leave();
    page = {};
    const content = el("div", {});
    try {
      if (!found) throw new Error("There is no such page.");
      const fresh = await gem.pages[found[0]](content, options, ...found.slice(1));
      if (turn !== visit) {
        if (fresh.leave) fresh.leave();
        return;
      }
      page = fresh;
    } catch (error) {
      if (turn !== visit) return;
      gem.show(content, el("p", { className: "error", role: "alert" }, error.message));
    }
    gem.show(main, content);
    document.title = `${page.title || "gem-core view"} – gem-core`;
    crumbs(parts);
    scrollTo(0, 0);
  }

  function crumbs(parts) {
    const links = [gem.link("runs", "")];
    if (parts[0] === "run") links.push(" / ", gem.link(`run ${parts[1]}`, `run/${parts[1]}`));
    if (parts[2]) links.push(" / ", gem.link("episodes", `run/${parts[1]}/episodes`));
    if (parts[0] === "compare") links.push(" / ", gem.link("compare", "compare"));
    gem.show(document.getElementById("crumbs"), links);
  }

  // -- following

  async function follow() {
    try {
      const state = (await gem.get("state")).runs;
      const changed = before === null ? [] : state.map((text, k) => (text === before[k] ? -1 : k)).filter((k) => k >= 0);
      before = state;
      gem.show(live, `following ${state.length} run${state.length === 1 ? "" : "s"}`);
      const concerns = page.run === undefined ? changed.length > 0 : changed.includes(page.run);
      if (concerns && page.changed) await page.changed();
    } catch (error) {
      gem.show(live, el("span", { className: "bad" }, "no answer"));
    }
    setTimeout(follow, FOLLOW_MS);
  }

  // -- keys

  function up() {
    const { parts, options } = parse();
    if (parts[0] === "compare" && options.step !== undefined) location.hash = gem.address("compare", { runs: options.runs });
    else if (parts[2] === "episode") location.hash = gem.address(`run/${parts[1]}/episodes`);
    else if (parts[2]) location.hash = gem.address(`run/${parts[1]}`);
    else location.hash = "#/";
  }

  function moveRow(by) {
    const rows = [...main.querySelectorAll("tr.item")];
    if (!rows.length) return;
    const now = rows.findIndex((row) => row.classList.contains("selected"));
    const next = Math.max(0, Math.min(rows.length - 1, now + by));
    rows.forEach((row, k) => row.classList.toggle("selected", k === next));
    rows[next].scrollIntoView({ block: "nearest" });
  }

  function openRow() {
    const row = main.querySelector("tr.item.selected");
    if (row) location.hash = row.dataset.href;
  }

  function toFilter() {
    const field = document.getElementById("filter");
    if (field) field.focus();
  }

  const COMMON = { "/": toFilter, "?": () => keys.showModal(), t: () => theme(), g: () => { location.hash = "#/"; }, u: up,
    j: () => moveRow(1), k: () => moveRow(-1), Enter: openRow };

  document.addEventListener("keydown", (event) => {
    const tag = event.target.tagName;
    if (event.key === "Escape" && event.target.blur) event.target.blur();
    if (event.ctrlKey || event.metaKey || event.altKey || ["INPUT", "SELECT", "TEXTAREA"].includes(tag)) return;
    if (event.key === "Enter" && ["A", "BUTTON", "SUMMARY"].includes(tag)) return;
    const action = (page.keys || {})[event.key] || COMMON[event.key];
    if (!action || keys.open) return;
    event.preventDefault();
    action();
  });

  // -- dark and light

  function remembered(value) {
    try {
      if (value !== undefined) localStorage.setItem("gem-core-theme", value);
      return localStorage.getItem("gem-core-theme");
    } catch (error) {
      return null;  // a browser may forbid storage, above all to files
    }
  }

  function theme() {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : window.matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    remembered(root.dataset.theme);
  }

  const kept = remembered();
  if (kept === "dark" || kept === "light") document.documentElement.dataset.theme = kept;
  document.getElementById("theme").addEventListener("click", theme);
  document.getElementById("help").addEventListener("click", () => keys.showModal());
  gem.show(keys, el("h2", {}, "Keys"), el("table", {}, el("tbody", {}, KEYS.map(([key, text]) =>
    el("tr", {}, el("td", {}, key.split(" ").map((one) => [el("kbd", {}, one), " "])), el("td", {}, text))))),
  el("button", { type: "button", on: { click: () => keys.close() } }, "Close"));
  window.addEventListener("hashchange", open);
  open().then(() => {
    if (gem.exported) gem.show(live, `exported ${gem.limits.date}`);
    else follow();
  });
})();
