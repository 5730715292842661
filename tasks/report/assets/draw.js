// Elements, and charts in their place, drawn again when it changes its width.

// Screen readers see a chart as one image, described by its label.
function place(holder, svg, label) {
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", label);
  for (const part of svg.querySelectorAll("[aria-label], [aria-description]")) {
    part.removeAttribute("aria-label");
    part.removeAttribute("aria-description");
  }
  holder.replaceChildren(svg);
}

function drawWhenSized(holder, draw, label) {
  let drawn = 0;
  const redraw = () => {
    const width = Math.floor(holder.clientWidth);
    if (width && width !== drawn) place(holder, draw(width), label);
    drawn = width;
  };
  new ResizeObserver(redraw).observe(holder);
  redraw();
}

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}
