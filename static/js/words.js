// Sentences in the reader's language, from the page's JSON block.

const words = JSON.parse(document.getElementById("words")?.textContent ?? "{}");

export function say(name, values = {}) {
  return (words[name] ?? name).replace(/\{(\w+)\}/g, (whole, key) => values[key] ?? whole);
}
