"use strict";
// What an exported comparison says beside its runs: tables, lists and pictures.
(function () {
  const { el } = gem;

  function section({ title, head, rows, items, pictures }) {
    const columns = (head || []).map((name, k) => [name, (row) => row.cells[k]]);
    return [el("h2", {}, title),
      rows ? gem.table(columns, rows.map((cells) => ({ cells }))) : null,
      items ? el("ul", {}, items.map((text) => el("li", {}, text))) : null,
      (pictures || []).map(({ name, data }) => el("p", {}, el("img", { alt: name, src: `data:image/png;base64,${data}` })))];
  }

  gem.reportSections = (report) =>
    (report ? el("div", { id: "report" }, el("p", {}, report.summary), report.sections.map(section)) : null);
})();
