"use strict";
// The tokens of an episode, coloured by log-probability or advantage.
(function () {
  const { el } = gem;
  const LOWEST = -6;

  gem.COLOURINGS = [["none", "no colours"], ["logprob", "log-probability"], ["advantage", "advantage"]];

  // Returns for every turn the place of its tokens: {segment, start, end}.
  gem.spans = function (record) {
    const places = {};
    (record.segments || []).forEach((segment, number) => {
      for (const [turn, start, end] of segment.spans) places[turn] = { segment: number, start, end };
    });
    return places;
  };

  gem.advantages = (record) => record.advantages || null;

  gem.hasLogprobs = (record) => (record.segments || []).some((s) => s.logprobs);

  function background(kind, logprob, advantage, largest) {
    if (kind === "logprob" && logprob !== null) {
      const strength = Math.min(1, logprob / LOWEST);
      return `rgb(227 74 51 / ${Math.round(strength * 85)}%)`;
    }
    if (kind === "advantage" && advantage !== null && largest > 0) {
      const strength = Math.round((Math.abs(advantage) / largest) * 75);
      return advantage >= 0 ? `rgb(42 157 92 / ${strength}%)` : `rgb(227 74 51 / ${strength}%)`;
    }
    return "";
  }

  // Tokens start..end of a segment as spans.
  gem.tokenSpans = function (record, pieces, number, start, end, options) {
    const segment = record.segments[number];
    const owner = new Array(segment.token_ids.length).fill(-1);
    for (const [turn, from, to] of segment.spans) owner.fill(turn, from, to);
    const advantages = gem.advantages(record);
    const largest = advantages ? Math.max(...advantages.map((a) => Math.abs(a || 0))) : 0;
    const spans = [];
    for (let k = start; k < end; k += 1) {
      const turn = owner[k];
      const logprob = turn >= 0 && segment.logprobs ? segment.logprobs[k] : null;
      const advantage = turn >= 0 && advantages ? advantages[turn] ?? null : null;
      const text = pieces ? pieces[number][k] : String(segment.token_ids[k]);
      const names = ["token", turn >= 0 ? "sampled" : "context"];
      if (!pieces) names.push("id");
      const parted = options.parted && options.parted.segment === number && options.parted.offset === k;
      if (parted) names.push("parted");
      const colour = turn >= 0 && !parted ? background(options.colouring, logprob, advantage, largest) : "";
      const facts = [`token ${k}: id ${segment.token_ids[k]}`];
      if (turn >= 0) facts.push(`turn ${turn + 1}`);
      if (logprob !== null) facts.push(`log-probability ${logprob.toFixed(4)}`);
      if (advantage !== null) facts.push(`advantage ${advantage.toFixed(4)}`);
      if (turn >= 0 && !segment.loss_mask[k]) facts.push("not trained on");
      const shown = parted && text.trim() === "" ? `${JSON.stringify(text).slice(1, -1)}${text}` : text;
      spans.push(el("span", { className: names.join(" "), title: facts.join(", "),
        style: colour ? { backgroundColor: colour } : {} }, shown));
    }
    return spans;
  };

  gem.legendOf = function (record, colouring) {
    if (colouring === "logprob" && !gem.hasLogprobs(record)) return "The engine reported no log-probabilities.";
    if (colouring === "logprob") return `The redder, the less probable (full colour: ${LOWEST} or less).`;
    if (colouring === "advantage" && !gem.advantages(record)) return "No advantages were recorded.";
    if (colouring === "advantage") return "Green: positive, red: negative; full colour: the largest of this episode.";
    return "";
  };

  gem.segmentView = function (record, pieces, number, options) {
    const count = record.segments[number].token_ids.length;
    return el("pre", { className: "tokens", tabindex: "0" }, gem.tokenSpans(record, pieces, number, 0, count, options));
  };
})();
