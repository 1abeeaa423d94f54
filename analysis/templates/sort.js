"use strict";
// A click on the head of a table sorts its rows by that column: by size where all begin with a number, else by name.

{
  const PREFIX = { T: 1e12, G: 1e9, M: 1e6, k: 1e3, m: 1e-3, "\u00b5": 1e-6 };
  const sizeOf = (text) => {
    const plain = text.replace(/[\u202f\u2009\u00a0]/g, "\u202f").replace(/\u2212/g, "-").trim();
    const span = [...plain.matchAll(/([\d.\u202f]+)\u202f(h|min|s)(?![\w/])/g)];
    const value = (digits) => Number(digits.replace(/\u202f/g, ""));
    if (span.length) return span.reduce((sum, [, digits, unit]) => sum + value(digits) * { h: 3600, min: 60, s: 1 }[unit], 0);
    const found = plain.match(/^(-?[\d\u202f]*\.?\d+)(?:\u202f([TGMk\u00b5m])?(?=B|FLOP|J|W|bit))?/);
    return found ? value(found[1]) * (found[2] ? PREFIX[found[2]] : 1) : null;
  };
  for (const table of document.querySelectorAll("table.grid")) {
    const rows = [...table.tBodies[0].rows];
    if (rows.length < 3) continue;
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button"; button.className = "sort"; button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") === "descending";
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const texts = rows.map((row) => row.cells[column].textContent);
        const sizes = texts.map(sizeOf), numbers = sizes.filter((size) => size !== null).length > texts.length / 2;
        const order = rows.map((_, place) => place).sort((a, b) => {
          if (numbers && (sizes[a] === null || sizes[b] === null)) return (sizes[a] === null) - (sizes[b] === null) || a - b;
          const less = numbers ? sizes[a] - sizes[b] : texts[a].localeCompare(texts[b], undefined, { numeric: true });
          return (up ? less : -less) || a - b;
        });
        table.tBodies[0].append(...order.map((place) => rows[place]));
      });
    });
  }
}
