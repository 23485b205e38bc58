"use strict";
// Answers come from the server, or, in an exported file, from the data in the file.
(function () {
  const block = document.getElementById("gem-data");
  const unpacked = block ? unpack(block.textContent) : null;
  let stored = null;
  gem.exported = block !== null;
  gem.limits = null;  // of an exported file, after its first answer

  async function unpack(text) {
    const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  }

  gem.get = async function (question, options) {
    if (gem.exported) {
      stored = await unpacked;
      gem.limits = stored.limits;
      return fromFile(question, options || {});
    }
    const query = new URLSearchParams(options || {}).toString();
    const response = await fetch(`api/${question}${query ? `?${query}` : ""}`);
    const answer = await response.json();
    if (!response.ok) throw new Error(answer.error);
    return answer;
  };

  function fromFile(question, options) {
    if (question === "runs") return stored.runs;
    if (question === "report") return stored.report;
    if (question === "run") return stored.run[options.run];
    if (question === "curves") return curves(options);
    if (question === "episodes") return episodes(options);
    if (question === "episode") return required(stored.episode[`${options.run}/${options.id}`]);
    if (question === "tasks") return tasks(options);
    if (question === "task") {
      return required(stored.task[`${options.step}/${options.split}/${options.idx}`]);
    }
    throw new Error(`The exported file cannot answer ${question}.`);
  }

  function required(answer) {
    if (!answer) throw new Error("This was not exported.");
    if (answer.error) throw new Error(answer.error);
    return answer;
  }

  const own = (object, name) => (Object.hasOwn(object, name) ? object[name] : undefined);

  function curves(options) {
    const metric = options.metric || "success/mean";
    const numbers = options.runs ? options.runs.split(",") : Object.keys(stored.run);
    const names = new Set(numbers.flatMap((n) => stored.run[n].metrics));
    const none = { train: [], eval: [] };
    const series = Object.fromEntries(numbers.map((n) => [n, own(stored.curves[n] || {}, metric) || none]));
    return { metric, metrics: [...names].sort(), series };
  }

  function episodes(options) {
    const { columns, rows, state } = stored.episodes[options.run];
    const at = Object.fromEntries(columns.map((name, k) => [name, k]));
    let kept = rows.filter((row) => passes(row, at, options));
    if (options.text) {
      kept = kept.filter((row) => texts(stored.episode[`${options.run}/${row[at.id]}`].record || { turns: [] })
        .some((text) => text.includes(options.text)));
    }
    const place = at[options.sort || "id"];
    const sign = options.order === "desc" ? -1 : 1;
    kept.sort((a, b) => (a[place] < b[place] ? -sign : a[place] > b[place] ? sign : a[0] - b[0]));
    const offset = Number(options.offset || 0);
    return { ...state, total: kept.length, complete: true, columns, rows: kept.slice(offset, offset + 200) };
  }

  function passes(row, at, options) {
    for (const name of ["split", "env", "stop", "success", "seed", "idx", "grp"]) {
      if ((options[name] ?? "") !== "" && String(Number(row[at[name]]) || row[at[name]] || 0) !== String(options[name])) {
        return false;
      }
    }
    for (const name of ["step", "reward", "turns", "tokens"]) {
      if ((options[`${name}_min`] ?? "") !== "" && row[at[name]] < Number(options[`${name}_min`])) return false;
      if ((options[`${name}_max`] ?? "") !== "" && row[at[name]] > Number(options[`${name}_max`])) return false;
    }
    return true;
  }

  function texts(record) {
    const inTurns = record.turns.flatMap((t) => [t.observation, t.action, String((t.info || {}).suffix || "")]);
    return [record.final_observation || "", record.error || "", ...inTurns];
  }

  function tasks(options) {
    const all = required(stored.tasks);
    const kept = options.different === "1"
      ? all.tasks.filter((t) => t.results.some((r) => r.success !== t.results[0].success))
      : all.tasks;
    const offset = Number(options.offset || 0);
    return { runs: all.runs, tasks: kept.slice(offset, offset + 200) };
  }
})();
