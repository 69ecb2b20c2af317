// Light and dark: the system's choice until the reader chooses. Canvases get their colours here.

const CHOICES = ["system", "light", "dark"];
const LABELS = { system: "◐ System", light: "○ Light", dark: "● Dark" };

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// Returns the colours of groups, in order; the last group has the colour of "others" if it is the rest.
export function groupColours(groups) {
  return groups.names.map((_, i) => colour(groups.rest && i === groups.names.length - 1 ? "rest" : `group${i}`));
}

function remembered() {
  try {
    const kept = localStorage.getItem("aclpool-theme");
    return CHOICES.includes(kept) ? kept : "system";
  } catch {
    return "system";   // a page that is opened from a file may have no storage
  }
}

function remember(choice) {
  try {
    localStorage.setItem("aclpool-theme", choice);
  } catch {
    // without storage the choice lasts as long as the page
  }
}

export function startTheme(button, onChange) {
  let choice = remembered();
  const show = () => {
    if (choice === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = choice;
    button.textContent = LABELS[choice];
    button.setAttribute("aria-label", `Colours: ${choice}`);
  };
  button.addEventListener("click", () => {
    choice = CHOICES[(CHOICES.indexOf(choice) + 1) % CHOICES.length];
    remember(choice);
    show();
    onChange();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", onChange);
  show();
}
