// The page as lines of text for a reader who cannot see it. What can be used has a number, which
// stays with it for as long as it is there. What nobody can see is left out.
({prefix, room}) => {
  const known = (window.__travois ??= {next: 1, numbers: new WeakMap(), elements: new Map()});
  const SKIP = new Set("SCRIPT STYLE NOSCRIPT TEMPLATE SVG CANVAS VIDEO AUDIO OBJECT".split(" "));
  const KINDS = {
    checkbox: "checkbox", radio: "radio", submit: "button", button: "button", reset: "button",
    image: "button", file: "file", range: "slider", hidden: "",
  };
  const TAGS = {BUTTON: "button", SELECT: "select", TEXTAREA: "textbox", SUMMARY: "button"};
  const ROLES = new Set(
    ("button link checkbox radio tab menuitem menuitemcheckbox menuitemradio option switch " +
     "combobox textbox searchbox slider spinbutton treeitem").split(" "));
  const lines = [];
  let line = "", used = 0;

  const tidy = (text, most) => {
    const plain = (text ?? "").replace(/\s+/g, " ").trim();
    return plain.length > most ? plain.slice(0, most - 1) + "…" : plain;
  };
  const quoted = (text, most = 120) => JSON.stringify(tidy(text, most));
  const flush = () => {
    const text = line.replace(/\s+/g, " ").trim();
    if (text) { lines.push(text); used += text.length + 1; }
    line = "";
  };
  const number = (element) => {
    if (!known.numbers.has(element)) {
      known.numbers.set(element, known.next);
      known.elements.set(known.next++, new WeakRef(element));
    }
    return prefix + known.numbers.get(element);
  };
  const role = (element) => {
    const said = element.getAttribute("role");
    if (ROLES.has(said)) return said;
    if (element.tagName === "INPUT") return KINDS[element.type] ?? "textbox";
    if (element.tagName === "A") return element.hasAttribute("href") ? "link" : "";
    if (TAGS[element.tagName]) return TAGS[element.tagName];
    const edited = element.isContentEditable && !element.parentElement?.isContentEditable;
    return edited ? "textbox" : element.hasAttribute("onclick") ? "button" : "";
  };
  const named = (element) =>
    element.getAttribute("aria-label") || [...(element.labels ?? [])].map((l) => l.innerText).join(" ")
    || (element.type === "submit" && element.value) || element.getAttribute("placeholder")
    || (element.tagName === "SELECT" ? element.name : element.innerText) || element.title
    || element.querySelector?.("img[alt]")?.alt || element.name || "";
  const state = (element) => {
    let told = "";
    if (element.tagName === "SELECT") {
      const options = [...element.options].slice(0, 20).map((o) => quoted(o.text, 40));
      told += ` = ${quoted(element.selectedOptions[0]?.text, 40)} of ${options.join(", ")}`;
    } else if (["checkbox", "radio"].includes(element.type)) {
      told += element.checked ? " (checked)" : "";
    } else if ("value" in element && !["BUTTON", "LI"].includes(element.tagName) && element.value
               && !["submit", "button", "reset", "image"].includes(element.type)) {
      told += ` = ${element.type === "password" ? '"…"' : quoted(element.value, 200)}`;
    }
    return told + (element.disabled ? " (disabled)" : "");
  };
  const inside = (element) => {
    const given = element.tagName === "SLOT" ? element.assignedNodes() : [];
    return given.length ? given : (element.shadowRoot ?? element).childNodes;
  };
  const walk = (node, hidden) => {
    if (used > room) return;
    if (node.nodeType === Node.TEXT_NODE) { if (!hidden) line += node.data; return; }
    if (node.nodeType !== Node.ELEMENT_NODE || SKIP.has(node.tagName.toUpperCase())) return;
    const style = getComputedStyle(node), what = role(node);
    if (style.display === "none" || node.getAttribute("aria-hidden") === "true") return;
    if (style.opacity === "0" && node.tagName !== "INPUT") return;
    if (parseFloat(style.fontSize) < 2 && !what) return;
    const unseen = style.visibility !== "visible";
    const apart = !/^(inline|contents|table-cell)/.test(style.display);
    if (apart || node.tagName === "BR") flush();
    if (/^H[1-6]$/.test(node.tagName)) line += "#".repeat(+node.tagName[1]) + " ";
    if (node.tagName === "LI") line += "- ";
    if (/^T[DH]$/.test(node.tagName)) line += " | ";
    if (node.tagName === "PRE" && !unseen) {
      lines.push("```", node.innerText, "```");
      used += node.innerText.length;
    } else if (what && !unseen) {
      line += ` [${number(node)}] ${what} ${quoted(named(node))}${state(node)} `;
    } else if (node.tagName === "IMG" && node.alt && !unseen) {
      line += ` image ${quoted(node.alt)} `;
    } else {
      for (const child of inside(node)) walk(child, unseen);
    }
    if (apart) flush();
  };
  try {
    if (document.body) walk(document.body, false);
  } catch (error) {
    lines.push(`(the rest cannot be read: ${error.message})`);
  }
  flush();
  return {title: tidy(document.title, 200), text: lines.join("\n").slice(0, room)};
}
