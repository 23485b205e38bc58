"use strict";
// Elements are made here and nowhere else. Text becomes text nodes; no string becomes HTML.
window.gem = {};

(function () {
  function set(element, name, value) {
    if (value === undefined || value === null || value === false) return;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (name === "style") {
      Object.assign(element.style, value);
    } else if (name in element && !name.includes("-") && name !== "list" && name !== "form") {
      element[name] = value;
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }

  function add(element, children) {
    for (const child of children.flat(Infinity)) {
      if (child === undefined || child === null || child === false) continue;
      element.append(child instanceof Node ? child : document.createTextNode(String(child)));
    }
    return element;
  }

  gem.el = function (tag, properties, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties || {})) set(element, name, value);
    return add(element, children);
  };

  gem.svg = function (tag, attributes, ...children) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name === "stroke" || name === "fill") element.style[name] = value;
      else element.setAttribute(name, value);
    }
    return add(element, children);
  };

  gem.show = function (element, ...children) {
    element.replaceChildren();
    return add(element, children);
  };

  gem.number = function (value, digits = 3) {
    if (value === null || value === undefined || Number.isNaN(value)) return "–";
    if (typeof value !== "number") return String(value);
    if (Number.isInteger(value)) return value.toLocaleString("en-US");
    const size = Math.abs(value);
    return size >= 0.001 && size < 1e6 ? value.toFixed(digits) : value.toExponential(2);
  };

  gem.yesNo = (value) =>
    gem.el("span", { className: value ? "good" : "bad" }, value ? "✓ yes" : "✗ no");

  gem.link = function (text, page, options, properties) {
    return gem.el("a", { href: gem.address(page, options), ...properties }, text);
  };

  gem.address = function (page, options) {
    const kept = Object.entries(options || {}).filter(([, v]) => v !== "" && v !== undefined);
    const query = new URLSearchParams(kept).toString();
    return `#/${page}${query ? `?${query}` : ""}`;
  };

  gem.field = (name, control) => gem.el("label", {}, name, control);

  gem.select = function (values, chosen, change) {
    const control = gem.el("select", { on: { change: () => change(control.value) } });
    for (const value of values) {
      const [key, text] = Array.isArray(value) ? value : [value, value];
      control.append(gem.el("option", { value: key, selected: String(key) === String(chosen) }, text));
    }
    return control;
  };

  gem.facts = function (pairs) {
    const shown = pairs.filter(([, value]) => value !== undefined && value !== null && value !== "");
    return gem.el("div", { className: "facts" },
      shown.map(([name, value]) => gem.el("div", {}, gem.el("b", {}, name), value)));
  };

  gem.table = function (columns, rows, properties) {
    // columns: [name, row -> content, "number" for figures]
    const head = columns.map(([name, , kind]) => gem.el("th", { className: kind || "", scope: "col" }, name));
    const body = rows.map((row) =>
      gem.el("tr", row.properties || {},
        columns.map(([, cell, kind]) => gem.el("td", { className: kind || "" }, cell(row)))));
    return gem.el("div", { className: "wide" },
      gem.el("table", properties || {}, gem.el("thead", {}, gem.el("tr", {}, head)), gem.el("tbody", {}, body)));
  };
})();
