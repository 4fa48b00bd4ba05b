// What a person writes stays theirs: it leaves its field only when the server took it, and a page that is loaded
// again, as after a lost connection, has it back. Drafts are in this tab's storage, under the page's address.
(() => {
  // The connection carries no message of more than a million bytes.
  const MAX_BYTES = 900_000;
  const bytesOf = (text) => new TextEncoder().encode(JSON.stringify(JSON.stringify(text))).length;

  const placeOf = (field) => `draft ${location.pathname}${location.search} ${field.dataset.draft}`;
  const stored = (act) => {
    try {
      return act(window.sessionStorage);
    } catch {
      return null; // full, or switched off: then nothing is kept
    }
  };
  const forget = (field) => stored((storage) => storage.removeItem(placeOf(field)));
  const keep = (field) => {
    const isForm = field instanceof HTMLFormElement;
    const held = isForm ? JSON.stringify(heldBy(field)) : field.value;
    if (held) stored((storage) => storage.setItem(placeOf(field), held));
    else forget(field);
  };
  const heldBy = (form) => {
    const held = {};
    for (const [name, value] of new FormData(form)) {
      if (form.elements[name]?.type !== "password") (held[name] ??= []).push(value);
    }
    return held;
  };
  const putBack = (field) => {
    const held = stored((storage) => storage.getItem(placeOf(field)));
    if (!held) return;
    if (field instanceof HTMLFormElement) {
      field.dispatchEvent(new CustomEvent("restored", { detail: JSON.parse(held) }));
    } else if (!field.value) {
      field.value = held;
    }
  };

  const known = new WeakSet();
  const look = () => {
    for (const field of document.querySelectorAll("[data-draft]")) {
      if (known.has(field)) continue;
      known.add(field);
      putBack(field);
    }
  };
  new MutationObserver(look).observe(document.documentElement, { childList: true, subtree: true });
  look();

  // Who follows a link away from a form that asked whether to leave has discarded what was in it.
  let discarding = false;
  const forms = () => document.querySelectorAll("form[data-draft]");
  document.addEventListener("input", (event) => {
    discarding = false;
    const field = event.target.closest?.("[data-draft]");
    if (field) keep(field);
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href]");
    if (link && !link.target && !event.ctrlKey && !event.metaKey && !event.shiftKey) discarding = true;
  });
  window.addEventListener("pagehide", () => {
    if (discarding) forms().forEach(forget);
    else if (window.asksToLeave) forms().forEach(keep);
  });
  window.forgetDrafts = () => forms().forEach(forget);

  // A text goes with a key that stays the same until it was taken: sent twice, it is taken once.
  window.sendText = (field, emit) => {
    const text = field.value;
    if (!text.trim()) return field.focus();
    if (bytesOf(text) > MAX_BYTES) return emit({ tooLong: text.length });
    if (field.sent?.text !== text) field.sent = { text, key: `${Date.now()} ${Math.random()}` };
    field.setAttribute("aria-busy", "true");
    emit({ key: field.sent.key, text });
  };
  window.textAnswered = (id, key, taken) => {
    const field = document.getElementById(id);
    if (field?.sent?.key !== key) return;
    if (taken && field.value === field.sent.text) field.value = "";
    if (taken) keep(field);
    delete field.sent;
    field.removeAttribute("aria-busy");
  };
})();
