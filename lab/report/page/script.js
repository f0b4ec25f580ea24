// Sorting by a click on a column's head. The page says everything without it.
document.querySelectorAll("table.sortable").forEach(function (table) {
  var heads = table.tHead.rows[0].cells, body = table.tBodies[0];
  var scale = { "ns": 1e-3, "µs": 1, "ms": 1e3, "s": 1e6, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30 };
  function key(row, i) {
    var cell = row.cells[i];
    if (!cell) return null;
    var parts = /^([+-]?[\d,.]+)\s*([kM]?)([^\s]*)/.exec(cell.textContent.trim());
    if (!parts) return i === 0 ? cell.textContent : null;
    var factor = parts[2] === "k" ? 1e3 : parts[2] === "M" && parts[3].charAt(0) === "/" ? 1e6 : scale[parts[2] + parts[3]] || 1;
    return i === 0 ? cell.textContent : parseFloat(parts[1].replace(/,/g, "")) * factor;
  }
  Array.prototype.forEach.call(heads, function (head, i) {
    head.dataset.sort = "";
    head.tabIndex = 0;
    function sort() {
      var up = head.getAttribute("aria-sort") !== "ascending";
      Array.prototype.forEach.call(heads, function (h) { h.removeAttribute("aria-sort"); });
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      Array.from(body.rows).map(function (row) { return [key(row, i), row]; }).sort(function (a, b) {
        if (a[0] === null || b[0] === null) return (a[0] === null) - (b[0] === null);
        return (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0) * (up ? 1 : -1);
      }).forEach(function (pair) { body.appendChild(pair[1]); });
    }
    head.addEventListener("click", sort);
    head.addEventListener("keydown", function (e) { if (e.key === "Enter") sort(); });
  });
});
