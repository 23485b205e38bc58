"use strict";
// The list of runs, and one run.
(function () {
  const { el } = gem;
  const state = { metric: "success/mean", smoothing: 0, hidden: new Set(), picked: new Set(), filter: "" };
  gem.settings = state;

  const rate = (evaluation) => {
    if (!evaluation) return "–";
    const low = evaluation["success/low"];
    const mean = gem.number(evaluation["success/mean"]);
    return low === undefined ? mean : `${mean} (${gem.number(low)} – ${gem.number(evaluation["success/high"])})`;
  };

  const progress = (run) => (run.steps ? `${run.step}/${run.steps}` : run.evaluated ? "–" : String(run.step));

  function statusOf(run) {
    const kinds = { finished: "good", failed: "bad", damaged: "bad", running: "good" };
    const reason = run.damage.length ? `: ${run.damage[0].slice(0, 200)}` : "";
    return el("span", { className: kinds[run.status] || "soft", title: run.damage.join("\n") }, `${run.status}${reason}`);
  }

  // -- the list of runs

  gem.pages = gem.pages || {};
  gem.pages.runs = async function (main) {
    const chart = curvesPanel(null);
    const table = el("div", {});
    const compare = el("button", { type: "button", on: { click: () => {
      location.hash = gem.address("compare", { runs: [...state.picked].join(",") });
    } } }, "Compare episodes of the picked runs");
    const filter = el("input", { type: "search", id: "filter", value: state.filter, placeholder: "trainer, recipe, name",
      on: { input: () => { state.filter = filter.value; fill(); } } });
    const matrix = el("div", {});
    const leftOut = el("div", {});
    const report = gem.exported ? gem.reportSections(await gem.get("report")) : null;
    let runs = [];
    gem.show(main, el("h1", {}, "Runs"),
      el("div", { className: "bar" }, gem.field("Filter (/)", filter), compare), table, leftOut, matrix,
      el("h2", {}, "Learning curves"), chart.node, report);

    const picked = () => { compare.disabled = state.picked.size < 2; };

    function fill() {
      const words = state.filter.toLowerCase().split(/\s+/).filter(Boolean);
      const shown = runs.filter((run) => words.every((word) =>
        [run.name, run.trainer, run.recipe, run.estimator, run.status, `seed${run.seed}`].join(" ").toLowerCase().includes(word)));
      picked();
      gem.show(table, runsTable(shown, picked), el("p", { className: "soft" }, `${shown.length} of ${runs.length} runs`));
      gem.show(matrix, gridMatrix(shown));
      chart.update(shown);
    }
    const load = async () => {
      const answer = await gem.get("runs");
      runs = answer.runs;
      gem.show(leftOut, answer.left_out.map((line) => el("p", { className: "soft" }, `Left out: ${line}`)));
      fill();
    };
    await load();
    return { changed: load, title: "Runs" };
  };

  function runsTable(runs, changed) {
    const pick = (run) => el("input", { type: "checkbox", checked: state.picked.has(run.id), "aria-label": `pick ${run.name}`,
      disabled: !run.episode_bytes, on: { change: (event) => {
        if (event.target.checked) state.picked.add(run.id);
        else state.picked.delete(run.id);
        changed();
      } } });
    const rows = runs.map((run) => ({ ...run, properties: { className: "item", "data-href": gem.address(`run/${run.id}`) } }));
    return gem.table([
      ["", pick],
      ["run", (run) => gem.link(run.name, `run/${run.id}`)],
      ["recipe", (run) => run.recipe],
      ["algorithm", (run) => run.estimator],
      ["trainer", (run) => run.trainer],
      ["seed", (run) => run.seed, "number"],
      ["status", statusOf],
      ["step", progress, "number"],
      ["success before", (run) => rate(run.before), "number"],
      ["after", (run) => rate(run.after), "number"],
      ...(runs.some((run) => run.evaluated) ? [["evaluated", (run) => rate(run.evaluated), "number"]] : []),
      ["in training", (run) => gem.number(run.now), "number"],
      ["train s", (run) => (run.seconds ? Math.round(run.seconds) : "–"), "number"],
    ], rows, { id: "runs" });
  }

  // Success after training: a row per experiment, a column per trainer, the mean over the seeds.
  function gridMatrix(runs) {
    const trainers = [...new Set(runs.map((run) => run.trainer))].sort();
    const done = runs.filter((run) => run.after);
    if (trainers.length < 2 || !done.length) return null;
    const experiments = [...new Set(done.map((run) => `${run.recipe}, ${run.estimator}`))].sort();
    const cell = (experiment, trainer) => {
      const rates = done.filter((run) => `${run.recipe}, ${run.estimator}` === experiment && run.trainer === trainer)
        .map((run) => run.after["success/mean"]);
      if (!rates.length) return "–";
      const mean = gem.number(rates.reduce((a, b) => a + b) / rates.length);
      if (rates.length === 1) return mean;
      return `${mean} (${gem.number(Math.min(...rates))} – ${gem.number(Math.max(...rates))}, ${rates.length} seeds)`;
    };
    const columns = [["recipe, algorithm", (row) => row.name],
      ...trainers.map((trainer) => [trainer, (row) => cell(row.name, trainer), "number"])];
    return [el("h2", {}, "Success after training, side by side"),
      gem.table(columns, experiments.map((name) => ({ name })), { id: "matrix" })];
  }

  // -- curves

  function curvesPanel(onlyRun) {
    const chart = new gem.Chart();
    const legend = el("div", { className: "legend" });
    const metrics = el("span", {});
    const smoothing = el("input", { type: "range", min: 0, max: 0.95, step: 0.05, value: state.smoothing,
      on: { input: () => { state.smoothing = Number(smoothing.value); draw(); } } });
    const reset = el("button", { type: "button", on: { click: () => chart.zoom(null) } }, "Whole range (0)");
    const note = el("span", { className: "soft" });
    const node = el("div", {},
      el("div", { className: "bar" }, gem.field("Metric", metrics), gem.field("Smoothing (off at the left)", smoothing), reset, note),
      chart.node, legend);
    let runs = [];
    let answer = null;
    let asked = 0;

    async function update(shown) {
      runs = shown;
      if (!runs.length) return;
      const options = { metric: state.metric, runs: runs.map((run) => run.id).join(",") };
      const turn = (asked += 1);
      const fresh = await gem.get("curves", options);
      if (turn !== asked) return;  // a later question has been asked since
      answer = fresh;
      const names = answer.metrics.includes(state.metric) ? answer.metrics : [state.metric, ...answer.metrics];
      gem.show(metrics, gem.select(names, state.metric, (name) => {
        state.metric = name;
        update(runs);
      }));
      fillLegend();
      draw();
    }

    function styled() {
      const trainers = [...new Set(runs.map((run) => run.trainer))].sort();
      const seen = {};
      return runs.map((run) => {
        const key = trainers.length > 1 ? run.trainer : run.name;
        seen[key] = (seen[key] ?? -1) + 1;
        const colour = trainers.length > 1 ? trainers.indexOf(run.trainer) : runs.indexOf(run);
        return { run, name: run.name, colour: gem.colour(colour), dash: trainers.length > 1 ? gem.dash(seen[key]) : "" };
      });
    }

    function draw() {
      if (!answer) return;
      const series = styled().filter((one) => !state.hidden.has(one.run.id) && answer.series[one.run.id]).map((one) => {
        const data = answer.series[one.run.id];
        return { ...one, train: gem.smoothed(data.train, state.smoothing), eval: data.eval };
      });
      gem.show(note, state.smoothing ? `smoothed by ${state.smoothing}; dots: evaluations` : "not smoothed; dots: evaluations");
      chart.set(series, state.metric);
    }

    function fillLegend() {
      if (onlyRun) return;
      const all = styled();
      const every = (hide) => () => {
        all.forEach((one) => (hide ? state.hidden.add(one.run.id) : state.hidden.delete(one.run.id)));
        fillLegend();
        draw();
      };
      const seeds = [...new Set(runs.map((run) => run.seed))].sort((a, b) => a - b);
      const bySeed = seeds.length < 2 ? null : seeds.map((seed) => el("button", { type: "button", on: { click: () => {
        all.forEach((one) => (one.run.seed === seed ? state.hidden.delete(one.run.id) : state.hidden.add(one.run.id)));
        fillLegend();
        draw();
      } } }, `only seed ${seed}`));
      gem.show(legend, el("button", { type: "button", on: { click: every(false) } }, "all"),
        el("button", { type: "button", on: { click: every(true) } }, "none"), bySeed,
        all.map((one) => el("label", {},
          el("input", { type: "checkbox", checked: !state.hidden.has(one.run.id), on: { change: (event) => {
            if (event.target.checked) state.hidden.delete(one.run.id);
            else state.hidden.add(one.run.id);
            draw();
          } } }),
          el("span", { className: "swatch", style: { background: one.colour } }), one.name)));
    }
    return { node, update };
  }

  // -- one run

  gem.pages.run = async function (main, options, number) {
    const panel = curvesPanel(true);
    const facts = el("div", {});
    const evals = el("div", {});
    const recipe = el("div", {});
    gem.show(main, facts, el("h2", {}, "Learning curve"), panel.node, evals, recipe);
    state.hidden.delete(Number(number));

    const load = async () => {
      const run = await gem.get("run", { run: number });
      run.id = Number(number);
      gem.show(facts, el("h1", {}, run.name), runFacts(run),
        el("p", {}, gem.link(`Episodes (${gem.number(run.episodes.episodes)})`, `run/${number}/episodes`, {}, { id: "episodes" })),
        run.damage.map((reason) => el("p", { className: "error damage" }, `Damaged: ${reason}`)),
        run.failed ? el("p", { className: "error" }, `Failed: ${run.failed.reason}`) : null);
      gem.show(evals, evaluations(run.evals));
      gem.show(recipe, el("details", {}, el("summary", {}, "Recipe"), el("pre", {}, JSON.stringify(run.recipe_table, null, 1))),
        el("details", {}, el("summary", {}, "Versions and hardware"), el("pre", {}, JSON.stringify(run.info, null, 1))));
      if (!run.metrics.includes(state.metric) && run.metrics.length) state.metric = run.metrics[0];
      await panel.update([run]);
      return run.name;
    };
    return { changed: load, title: await load(), run: Number(number) };
  };

  function runFacts(run) {
    const at = new Date((run.started || NaN) * 1000);
    const date = Number.isNaN(at.getTime()) ? null : at.toISOString().slice(0, 16).replace("T", " ");
    const environments = ((run.recipe_table || {}).env || []).map((env) => env.id).join(", ");
    return gem.facts([["trainer", run.trainer], ["recipe", run.recipe], ["algorithm", run.estimator], ["seed", run.seed],
      ["environments", environments], ["status", statusOf(run)], ["step", progress(run)],
      ["success before", rate(run.before)], ["success after", rate(run.after)],
      ["success", run.evaluated ? rate(run.evaluated) : null],
      [run.evaluated ? "seconds" : "training seconds", run.seconds ? Math.round(run.seconds) : null], ["started (UTC)", date],
      ["commit", ((run.result || {}).commit || (run.info || {}).commit || "").slice(0, 12)],
      ["lines that are no episodes", run.episodes.broken || null]]);
  }

  function evaluations(rows) {
    if (!rows.length) return null;
    return [el("h2", {}, "Evaluations"), gem.table([
      ["when", (row) => row.when], ["step", (row) => gem.number(row.step), "number"],
      ["episodes", (row) => gem.number(row.episodes), "number"],
      ["success", (row) => rate(row), "number"], ["reward", (row) => gem.number(row["reward/mean"]), "number"],
      ["turns", (row) => gem.number(row["turns/mean"], 2), "number"],
      ["action tokens", (row) => gem.number(row["tokens/action"], 1), "number"],
      ["invalid turns", (row) => gem.number(row["turns/invalid"]), "number"],
    ], rows)];
  }
})();
