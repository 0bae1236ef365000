// Keyboard: "/" goes to the search field, "?" opens the help page's list of keys in place.
// Without this file everything is still reachable by Tab and by links.
"use strict";

(() => {
  const typing = (target) =>
    target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));

  const openHelp = async (link) => {
    const open = document.querySelector("dialog[open]");
    if (open) return open.close();
    let dialog = document.getElementById("help-dialog");
    if (!dialog) {
      const answer = await fetch(link.href, { headers: { "X-Requested-With": "help" } });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const list = page.getElementById("keys");
      if (!answer.ok || !list) return location.assign(link.href);
      dialog = document.createElement("dialog");
      dialog.id = "help-dialog";
      dialog.setAttribute("aria-labelledby", "keys-title");
      dialog.append(document.adoptNode(list));
      const close = document.createElement("button");
      close.type = "button";
      close.textContent = "Close";
      close.addEventListener("click", () => dialog.close());
      dialog.append(close);
      document.body.append(dialog);
    }
    dialog.showModal();
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    if (event.key === "/") {
      const field = document.getElementById("search");
      if (field) { event.preventDefault(); field.focus(); field.select(); }
    } else if (event.key === "?") {
      const link = document.querySelector("[data-help]");
      if (link) { event.preventDefault(); openHelp(link); }
    }
  });
})();
