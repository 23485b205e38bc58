"use strict";
// The same task in several runs side by side, with the first token at which they differ.
(function () {
  const { el } = gem;

  gem.pages.compare = async function (main, options) {
    const { runs } = await gem.get("runs");
    const withEpisodes = runs.filter((run) => run.episode_bytes > 0);
    const chosen = chosenRuns(options, withEpisodes);
    const rest = { ...options };
    delete rest.with;
    const address = (numbers) => gem.address("compare", { ...rest, runs: numbers.join(",") });
    const picks = withEpisodes.map((run) => el("label", { className: "chip" }, el("input", { type: "checkbox",
      checked: chosen.includes(run.id), disabled: gem.exported, on: { change: (event) => {
        location.hash = address(event.target.checked ? [...chosen, run.id] : chosen.filter((n) => n !== run.id));
      } } }), ` ${run.name} (${run.trainer})`));
    const content = el("div", {});
    gem.show(main, el("h1", {}, "The same task in several runs"),
      gem.exported ? null : el("details", { open: chosen.length < 2 }, el("summary", {}, `${chosen.length} runs chosen`), el("div", { className: "bar" }, picks)),
      content);
    if (chosen.length < 2) gem.show(content, el("p", {}, "Choose two to six runs that logged episodes."));
    else if (options.step !== undefined) await showTask(content, chosen, options, runs);
    else await showTasks(content, chosen, options, runs);
    return { title: "Compare", keys: { u: () => { location.hash = gem.address("compare", { runs: chosen.join(",") }); } } };
  };

  function chosenRuns(options, available) {
    if (options.runs) return options.runs.split(",").map(Number);
    const first = options.with === undefined ? [] : [Number(options.with)];
    const origin = available.find((run) => run.id === first[0]);
    if (!origin) return gem.exported ? available.map((run) => run.id) : first;
    const alike = available.filter((run) => run.id !== origin.id && run.recipe === origin.recipe &&
      run.estimator === origin.estimator && run.seed === origin.seed);
    return [...first, ...alike.map((run) => run.id)].slice(0, 6);
  }

  async function showTasks(content, chosen, options, runs) {
    const offset = Number(options.offset || 0);
    const answer = await gem.get("tasks", { runs: chosen.join(","), different: options.different || "", offset });
    const to = (changes) => gem.address("compare", { ...options, runs: chosen.join(","), ...changes });
    const different = el("input", { type: "checkbox", id: "different", checked: options.different === "1", on: { change: () => {
      location.hash = to({ different: different.checked ? "1" : "", offset: "" });
    } } });
    const rows = answer.tasks.map((task) => ({ ...task, properties: { className: "item",
      "data-href": to({ step: task.step, split: task.split, idx: task.idx }) } }));
    const columns = [
      ["task", (t) => el("a", { href: t.properties["data-href"] }, `step ${t.step}, ${t.split} ${t.idx}`)],
      ["environment", (t) => t.env], ["seed", (t) => gem.number(t.seed), "number"],
      ...answer.runs.map((number, k) => [`${runs[number].name}`, (t) => [gem.yesNo(t.results[k].success),
        ` reward ${gem.number(t.results[k].reward)}, ${t.results[k].turns} turns`]]),
    ];
    gem.show(content, el("div", { className: "bar" }, gem.field("Only tasks with different success", different)),
      rows.length ? gem.table(columns, rows, { id: "tasks" }) : el("p", {}, "No task was logged by all of them."),
      el("div", { className: "bar" }, offset ? el("a", { href: to({ offset: Math.max(0, offset - 200) }) }, "previous tasks") : null,
        rows.length === 200 ? el("a", { href: to({ offset: offset + 200 }) }, "more tasks") : null));
  }

  async function showTask(content, chosen, options, runs) {
    const answer = await gem.get("task", { runs: chosen.join(","), step: options.step, split: options.split, idx: options.idx });
    const parting = answer.parting;
    const first = answer.episodes[0].record;
    const sides = el("div", { className: "sides" });
    const settings = gem.tokenSettings;
    const colouring = gem.select(gem.COLOURINGS, settings.colouring, (kind) => {
      settings.colouring = kind;
      draw();
    });
    const jump = el("button", { type: "button", disabled: !parting, on: { click: () => toParting(sides) } }, "To the first difference");
    function draw() {
      gem.show(sides, answer.episodes.map((episode) => sideView(episode, runs[episode.run], parting)));
      requestAnimationFrame(() => toParting(sides));
    }
    gem.show(content,
      el("p", {}, `Step ${first.step}, ${first.split} ${first.index}: ${first.env_id}, seed ${gem.number(first.seed)}. `,
        el("b", { id: "parting" }, partingText(parting, answer.episodes, runs))),
      el("div", { className: "bar" }, el("a", { href: gem.address("compare", { runs: chosen.join(",") }) }, "all tasks (u)"),
        gem.field("Token colours", colouring), jump), sides);
    draw();
  }

  function toParting(sides) {
    for (const mark of sides.querySelectorAll(".parted")) {
      const box = mark.closest("pre");
      box.scrollTop = Math.max(0, mark.offsetTop - box.offsetTop - box.clientHeight / 3);
    }
  }

  function partingText(parting, episodes, runs) {
    if (!parting) return "They are equal to the last token.";
    if (parting.unit === "text") return `They differ first in turn ${parting.turn + 1} (texts compared: no tokens were recorded).`;
    const where = parting.turn >= 0 ? `in the action of turn ${parting.turn + 1}` : "in a prompt";
    const values = parting.ids.map((id, k) => `${runs[episodes[k].run].trainer} ${id === null ? "has ended" : id}`).join(", ");
    return `They differ first at token ${parting.position}, ${where}: ${values}.`;
  }

  function sideView(episode, run, parting) {
    const { record, pieces } = episode;
    const reward = record.turns.reduce((sum, turn) => sum + turn.reward, 0);
    const options = { colouring: gem.tokenSettings.colouring, parted: parting && parting.unit === "token" ? parting : null };
    const tokens = (record.segments || []).map((segment, number) => gem.segmentView(record, pieces, number, options));
    const turns = record.turns.map((turn, k) => el("div", { className: "part" },
      el("div", { className: "name" }, `${turn.kind === "summary" ? "summary, " : ""}turn ${k + 1}, reward ${gem.number(turn.reward)}`),
      el("pre", { className: "tokens" }, el("span", { className: "context" }, turn.observation, "\n"),
        el("span", { className: parting && parting.unit === "text" && parting.turn === k ? "parted" : "sampled" }, turn.action))));
    return el("section", { className: "side" },
      el("h3", {}, gem.link(`${run.name} (${run.trainer})`, `run/${episode.run}/episode/${episode.id}`)),
      el("div", { className: "part" }, gem.yesNo(record.success), ` reward ${gem.number(reward)}, ${record.turns.length} turns, ${record.stop_reason}`),
      tokens.length ? el("div", { className: "part" }, tokens) : turns);
  }
})();
