"""Each module has a test that imports it, or one named here that covers it through another module.

This shows that somebody has thought of a module's test, not how good the test is: `make coverage`
counts lines and branches.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("schemas", "hdpvfl_mq", "parties", "broker")

# Modules that no test imports: the test that fails without them. A folder covers all modules in it.
COVERED_THROUGH = {
    "broker/closing.py": "unit/test_machine.py",
    "broker/process/lobby.py": "integration/test_joining.py",
    "broker/training.py": "simulation/test_absence.py",
    "hdpvfl_mq/app/commands/check.py": "unit/app/test_command_check.py",
    "hdpvfl_mq/app/commands/evidence.py": "integration/test_look_back.py",
    "hdpvfl_mq/app/commands/federate.py": "integration/test_joining.py",
    "hdpvfl_mq/app/commands/keys.py": "unit/runtime/test_replaced_keys.py",
    "hdpvfl_mq/app/commands/local.py": "unit/app/test_own_files.py",
    "hdpvfl_mq/app/commands/look_back.py": "integration/test_look_back.py",
    "hdpvfl_mq/app/commands/offline.py": "unit/app/test_command_plan.py",
    "hdpvfl_mq/app/commands/report.py": "integration/test_look_back.py",
    "hdpvfl_mq/app/commands/scoring.py": "integration/test_scoring_services.py",
    "hdpvfl_mq/app/demo/rows.py": "integration/test_up_losses.py",
    "hdpvfl_mq/app/demo/summary.py": "integration/test_up_losses.py",
    "hdpvfl_mq/app/estimators": "unit/app/test_estimators.py",
    "hdpvfl_mq/app/live_model.py": "integration/test_live.py",
    "hdpvfl_mq/app/parsing.py": "unit/app/test_help.py",
    "hdpvfl_mq/app/report/templates.py": "unit/app/test_report_page.py",
    "hdpvfl_mq/audit/checks_ledger.py": "unit/audit/test_audit.py",
    "hdpvfl_mq/audit/checks_privacy.py": "unit/audit/test_audit.py",
    "hdpvfl_mq/audit/checks_run.py": "unit/audit/test_audit.py",
    "hdpvfl_mq/data/arrow_functions.py": "contracts/test_small_imports.py",
    "hdpvfl_mq/data/layout.py": "unit/data/test_csv_pieces.py",
    "hdpvfl_mq/data/moments.py": "unit/data/test_data_preprocess.py",
    "hdpvfl_mq/data/without_pandas.py": "unit/data/test_without_pandas.py",
    "hdpvfl_mq/endings.py": "simulation/test_refused_offers.py",
    "hdpvfl_mq/engine/core_dumps.py": "unit/engine/test_worker.py",
    "hdpvfl_mq/engine/no_pandas.py": "unit/data/test_data_engines.py",
    "hdpvfl_mq/runtime/no_plugins.py": "contracts/test_small_imports.py",
    "hdpvfl_mq/glm/families": "contracts/test_families.py",
    "hdpvfl_mq/methods/private_model/worth.py": "simulation/test_private_model.py",
    "hdpvfl_mq/node/chained.py": "unit/node/test_node.py",
    "hdpvfl_mq/node/envelope_form.py": "simulation/test_odd_envelopes.py",
    "hdpvfl_mq/node/frozen.py": "simulation/test_snapshots.py",
    "hdpvfl_mq/node/exchanging.py": "simulation/test_parts.py",
    "hdpvfl_mq/node/streams.py": "unit/node/test_mailbox.py",
    "hdpvfl_mq/privacy/ledger_rows.py": "unit/privacy/test_ledger_store.py",
    "hdpvfl_mq/psi/collect.py": "unit/psi/test_psi_ids.py",
    "hdpvfl_mq/psi/normal_forms.py": "unit/psi/test_psi_normal_forms.py",
    "hdpvfl_mq/psi/open.py": "unit/psi/test_psi_sessions.py",
    "hdpvfl_mq/psi/seal.py": "unit/psi/test_psi_attacks.py",
    "hdpvfl_mq/psi/session.py": "unit/psi/test_psi_sessions.py",
    "hdpvfl_mq/psi/terms.py": "unit/psi/test_psi_refusals.py",
    "hdpvfl_mq/psi/workspace.py": "unit/psi/test_psi_sessions.py",
    "hdpvfl_mq/runtime/endpoints.py": "integration/test_watching.py",
    "hdpvfl_mq/runtime/notify.py": "integration/test_watching.py",
    "hdpvfl_mq/runtime/window.py": "integration/test_watching.py",
    "parties/process/disclosure.py": "simulation/test_private_model.py",
    "parties/process/judge.py": "integration/test_services.py",
    "parties/process/lifetime.py": "unit/parties/test_ledger_slots.py",
    "parties/process/member_node.py": "integration/test_rotation.py",
    "parties/proposals.py": "integration/test_joining.py",
    "parties/process/scored_query.py": "simulation/test_used_query_numbers.py",
    "parties/process/unable.py": "integration/test_unable.py",
    "parties/admission.py": "simulation/test_refused_offers.py",
    "parties/agreement.py": "simulation/test_one_run_for_all.py",
    "parties/closing.py": "simulation/test_one_run_for_all.py",
    "parties/echo.py": "simulation/test_one_run_for_all.py",
    "parties/process/run_settings.py": "integration/test_services.py",
    "parties/rounds": "contracts/test_federation_arithmetic.py",
    "parties/snapshot.py": "simulation/test_snapshots.py",
    "schemas/route.py": "contracts/test_messages.py",
}


@cache
def imported_by_tests() -> set[str]:
    found = set()
    for path in (ROOT / "tests").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def modules() -> list[Path]:
    return [
        path.relative_to(ROOT)
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if path.name != "__init__.py"
    ]


def is_imported(module: Path, imported: set[str]) -> bool:
    return ".".join(module.with_suffix("").parts) in imported


def is_tested(module: Path, imported: set[str]) -> bool:
    named = (COVERED_THROUGH.get(str(part)) for part in (module, *module.parents))
    return is_imported(module, imported) or any(named)


def test_a_module_has_its_test() -> None:
    imported = imported_by_tests()
    untested = [str(module) for module in modules() if not is_tested(module, imported)]
    assert not untested, "write a test that imports each of these, or name one in COVERED_THROUGH"


def test_the_list_names_only_what_exists() -> None:
    for module, test in COVERED_THROUGH.items():
        assert (ROOT / module).exists(), f"{module} is gone: remove it from COVERED_THROUGH"
        assert (ROOT / "tests" / test).exists(), f"tests/{test} is gone"


def test_the_list_names_only_what_no_test_imports() -> None:
    imported = imported_by_tests()
    alone = {m for m in modules() if not is_imported(m, imported)}
    needed = {str(part) for module in alone for part in (module, *module.parents)}
    assert not COVERED_THROUGH.keys() - needed, "tests import these: remove them"
