// What every page behind the login needs.

// First, so that what it holds back reaches nobody else.
import "./offline.js";
import "./clock.js";
import "./copy.js";
import "./dialog.js";
import "./forms.js";
import "./keys.js";
import "./live.js";
import "./rail.js";
import "./refresh.js";
import "./seek.js";
import "./time.js";
import "./undo.js";
