// Makes elements from names, attributes and children; text children are never parsed as HTML.

/** Make an element. Attributes that are false or null are left out; `on` has listeners by event. */
export function element(name, { on = {}, ...attributes } = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== false && value !== null) made.setAttribute(key, value === true ? "" : value);
  }
  for (const [event, listener] of Object.entries(on)) made.addEventListener(event, listener);
  made.append(...children.filter((child) => child !== null));
  return made;
}
