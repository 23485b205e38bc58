"use strict";
// Learning curves: hover, zoom by dragging, keys + - 0 and the arrows.
(function () {
  const { el, svg } = gem;
  const COLOURS = ["#3b82f6", "#e4572e", "#2a9d5c", "#a855f7", "#d29b00", "#0ea5a5", "#e84a8a", "#8a94a3"];
  const DASHES = ["", "6 3", "2 3", "9 3 2 3", "12 4"];
  const MARGIN = { left: 56, right: 14, top: 12, bottom: 30 };

  gem.colour = (k) => COLOURS[k % COLOURS.length];
  gem.dash = (k) => DASHES[k % DASHES.length];

  gem.smoothed = function (points, weight) {
    if (!weight) return points;
    let mean = 0;
    let total = 0;
    return points.map(([x, y]) => {
      mean = weight * mean + (1 - weight) * y;
      total = weight * total + (1 - weight);
      return [x, mean / total];
    });
  };

  gem.Chart = class {
    // series: [{name, colour, dash, train: [[x, y]], eval: [[x, y]]}]
    constructor() {
      this.series = [];
      this.range = null;
      this.drawing = svg("svg", { role: "img", tabindex: "0" });
      this.readout = el("div", { className: "readout", hidden: true });
      this.node = el("div", { className: "chart" }, this.drawing, this.readout);
      const on = (name, listener) => this.drawing.addEventListener(name, listener);
      on("pointerdown", (event) => this.press(event));
      on("pointermove", (event) => this.move(event));
      on("pointerup", (event) => this.release(event));
      on("pointerleave", () => this.leave());
      on("dblclick", () => this.zoom(null));
      on("keydown", (event) => this.key(event));
      new ResizeObserver(() => this.draw()).observe(this.node);
    }

    set(series, label) {
      this.series = series;
      this.label = label;
      this.draw();
    }

    zoom(range) {
      this.range = range;
      this.draw();
    }

    key(event) {
      const [low, high] = this.range || this.whole();
      const width = high - low;
      const changes = { "+": [width / 4, -width / 4], "=": [width / 4, -width / 4], "-": [-width / 2, width / 2],
        ArrowLeft: [-width / 5, -width / 5], ArrowRight: [width / 5, width / 5] };
      if (event.key === "0") this.zoom(null);
      else if (changes[event.key]) this.zoom([low + changes[event.key][0], high + changes[event.key][1]]);
      else return;
      event.preventDefault();
      event.stopPropagation();
    }

    whole() {
      const xs = this.series.flatMap((s) => [...s.train, ...s.eval].map(([x]) => x));
      return bounds(xs);
    }

    draw() {
      const width = this.drawing.clientWidth || 600;
      const height = this.drawing.clientHeight || 340;
      this.x = scale(this.range || this.whole(), [MARGIN.left, width - MARGIN.right]);
      const inside = this.series.flatMap((s) => [...s.train, ...s.eval]).filter(([x]) => this.x.has(x));
      this.y = scale(padded(bounds(inside.map(([, y]) => y))), [height - MARGIN.bottom, MARGIN.top]);
      const points = this.series.reduce((sum, s) => sum + s.train.length, 0);
      this.drawing.setAttribute("aria-label", `${this.label}: ${this.series.length} curves, ${points} points`);
      gem.show(this.drawing, this.axes(width, height), this.series.map((s) => this.curve(s)));
      this.cross = svg("line", { class: "cross", y1: MARGIN.top, y2: height - MARGIN.bottom, visibility: "hidden" });
      this.zone = svg("rect", { class: "zone", y: MARGIN.top, height: height - MARGIN.bottom - MARGIN.top, visibility: "hidden" });
      this.drawing.append(this.cross, this.zone);
    }

    axes(width, height) {
      const lines = ticks(this.y.domain, 6).map((value) => [
        svg("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: this.y(value), y2: this.y(value) }),
        svg("text", { x: MARGIN.left - 6, y: this.y(value) + 4, "text-anchor": "end" }, shortNumber(value)),
      ]);
      const steps = ticks(this.x.domain, Math.max(3, width / 110)).map((value) =>
        svg("text", { x: this.x(value), y: height - 9, "text-anchor": "middle" }, shortNumber(value)));
      return [lines, steps];
    }

    curve(one) {
      const shown = one.train.filter(([x], k) =>
        this.x.has(x) || this.x.has((one.train[k + 1] || [x])[0]) || this.x.has((one.train[k - 1] || [x])[0]));
      const path = shown.map(([x, y], k) => `${k ? "L" : "M"}${this.x(x).toFixed(1)} ${this.y(y).toFixed(1)}`);
      const parts = [svg("path", { d: path.join(""), stroke: one.colour, "stroke-dasharray": one.dash || "none" })];
      const dots = shown.length < 3 ? [...shown, ...one.eval] : one.eval;
      for (const [x, y] of dots.filter(([at]) => this.x.has(at))) {
        parts.push(svg("circle", { cx: this.x(x), cy: this.y(y), r: 3.5, fill: one.colour }));
      }
      return parts;
    }

    place(event) {
      return event.clientX - this.drawing.getBoundingClientRect().left;
    }

    press(event) {
      if (event.pointerType !== "touch") this.begun = this.place(event);
    }

    release(event) {
      const begun = this.begun;
      this.begun = undefined;
      if (begun === undefined) return;
      const ends = [begun, this.place(event)].sort((a, b) => a - b);
      if (ends[1] - ends[0] > 6) this.zoom(ends.map((end) => this.x.back(end)));
      else this.zone.setAttribute("visibility", "hidden");
    }

    leave() {
      this.readout.hidden = true;
      this.cross.setAttribute("visibility", "hidden");
    }

    move(event) {
      const at = this.place(event);
      if (this.begun !== undefined) {
        this.zone.setAttribute("visibility", "visible");
        this.zone.setAttribute("x", Math.min(at, this.begun));
        this.zone.setAttribute("width", Math.abs(at - this.begun));
      }
      const near = nearest(this.series, this.x.back(at));
      if (near === null) return;
      this.cross.setAttribute("visibility", "visible");
      for (const end of ["x1", "x2"]) this.cross.setAttribute(end, this.x(near));
      const rows = this.series.map((s) => [s, [...s.train, ...s.eval].filter(([x]) => x === near)])
        .filter(([, points]) => points.length).sort((a, b) => b[1][0][1] - a[1][0][1]);
      const shown = rows.slice(0, 14).map(([s, points]) => el("div", {},
        el("span", { className: "swatch", style: { background: s.colour } }), ` ${s.name}: `,
        points.map((p) => gem.number(p[1], 4)).join(" / ")));
      const more = rows.length > 14 ? el("div", { className: "soft" }, `and ${rows.length - 14} more`) : null;
      gem.show(this.readout, el("b", {}, `step ${gem.number(near)}`), shown, more);
      this.readout.hidden = false;
    }
  };

  function nearest(series, x) {
    let best = null;
    for (const one of series) {
      for (const [at] of [...one.train, ...one.eval]) {
        if (best === null || Math.abs(at - x) < Math.abs(best - x)) best = at;
      }
    }
    return best;
  }

  function bounds(values) {
    if (!values.length) return [0, 1];
    let low = Infinity;
    let high = -Infinity;
    for (const value of values) {
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
    return low === high ? [low - 0.5, high + 0.5] : [low, high];
  }

  const padded = ([low, high]) => [low - (high - low) * 0.05, high + (high - low) * 0.05];

  function scale(domain, range) {
    const factor = (range[1] - range[0]) / (domain[1] - domain[0]);
    const map = (value) => range[0] + (value - domain[0]) * factor;
    map.back = (place) => domain[0] + (place - range[0]) / factor;
    map.has = (value) => value >= domain[0] && value <= domain[1];
    map.domain = domain;
    return map;
  }

  function ticks([low, high], count) {
    const rough = (high - low) / count;
    const unit = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((k) => k * unit).find((value) => value >= rough) || rough;
    const found = [];
    for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) found.push(value);
    return found;
  }

  const shortNumber = (value) => String(Number(value.toPrecision(4)));
})();
