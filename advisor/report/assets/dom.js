// Elements from names, attributes and children; a child that is text stays text, whatever it holds.

/** An element. Attributes that are false or null are left out; `on` holds listeners by event. */
export function element(name, { on = {}, ...attributes } = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== false && value !== null) made.setAttribute(key, value === true ? "" : value);
  }
  for (const [event, listener] of Object.entries(on)) made.addEventListener(event, listener);
  made.append(...children.filter((child) => child !== null));
  return made;
}
