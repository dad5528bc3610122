"""The table of routes: what is not in here does not exist, and what is, is documented."""

from __future__ import annotations

from broker.api import answers as a
from broker.api import answers_fleet as f
from broker.api import answers_insight as i
from broker.api import answers_policies as p
from broker.api import requests as r
from broker.api.handlers import (
    admin,
    blobs,
    cycles,
    datasets,
    decisions,
    events,
    fleet,
    freeze,
    jobs,
    joining,
    logs,
    policies,
)
from broker.api.routes import Access, Answer, BodyOf, Route

OCTETS = "application/octet-stream"
SSE = "text/event-stream"

_KEY = {"Idempotency-Key": "A repeat with the same key and body makes nothing new."}
_REPLAY = {"Idempotent-Replayed": "true when nothing new was made."}
_PLACE = {"Location": "The job's own path."}
_LOG = {
    "X-Log-Offset": "Offset of the first byte sent.",
    "X-Log-Complete": "true when the stream will not grow.",
}
_TO_SITE = "taken; the site follows"

JOBS = (
    Route(
        "POST", "/v1/jobs", jobs.submit, "Submit a job", "jobs",
        {
            201: Answer("taken on", a.SubmittedView, headers=_PLACE),
            200: Answer("taken on before, under this key", a.SubmittedView, headers=_REPLAY),
        },
        body=BodyOf(), headers=_KEY,
    ),
    Route(
        "POST", "/v1/jobs/batch", jobs.submit_batch, "Submit up to 1,000 jobs, all or none",
        "jobs",
        {
            201: Answer("all taken on", a.BatchView),
            200: Answer("taken on before, under this key", a.BatchView, headers=_REPLAY),
        },
        body=BodyOf(r.BatchBody), headers=_KEY,
    ),
    Route(
        "GET", "/v1/jobs", jobs.list_jobs, "List jobs, newest first", "jobs",
        {200: Answer("a page", a.JobsView)}, query=r.JobsQuery,
    ),
    Route(
        "GET", "/v1/jobs/{id}", jobs.show, "A job with its spec and attempts", "jobs",
        {200: Answer("the job", a.WholeJobView)},
    ),
    Route(
        "PATCH", "/v1/jobs/{id}", jobs.reprioritise, "Change a job's priority", "jobs",
        {202: Answer(_TO_SITE, a.AskedView)}, body=BodyOf(r.PriorityBody), problems=(409,),
    ),
    Route(
        "POST", "/v1/jobs/{id}/cancel", jobs.cancel, "Cancel a job", "jobs",
        {202: Answer(_TO_SITE, a.AskedView)},
        body=BodyOf(r.WhyBody, optional=True), problems=(409,),
    ),
    Route(
        "POST", "/v1/jobs/{id}/hold", jobs.hold, "Hold a waiting job", "jobs",
        {202: Answer("held", a.AskedView)},
        body=BodyOf(r.WhyBody, optional=True), problems=(409,),
    ),
    Route(
        "POST", "/v1/jobs/{id}/release", jobs.release, "Release a held job", "jobs",
        {202: Answer("released", a.AskedView)},
        body=BodyOf(r.WhyBody, optional=True), problems=(409,),
    ),
    Route(
        "GET", "/v1/jobs/{id}/explain", decisions.explain, "Why it is where it is, or waits",
        "jobs", {200: Answer("the decision", a.JobExplainView)},
    ),
    Route(
        "GET", "/v1/jobs/{id}/outputs", jobs.outputs, "Results that came back", "jobs",
        {200: Answer("the files", a.OutputsView)},
    ),
    Route(
        "GET", "/v1/jobs/{id}/logs", logs.logs,
        "A log: bytes from an offset, or events (log, waiting, end) for Accept: "
        "text/event-stream", "jobs",
        {200: Answer("bytes, or events", media=OCTETS, headers=_LOG)}, query=r.LogsQuery,
    ),
    Route(
        "POST", "/v1/plan", decisions.plan, "What would be decided; nothing is stored", "jobs",
        {200: Answer("the candidates", a.ExplainView)}, body=BodyOf(),
    ),
    Route(
        "GET", "/v1/events", events.events,
        "Events (job, attempt, cluster; reset after compaction) as they happen", "events",
        {200: Answer("events, ids are <revision>.<index>", media=SSE)}, query=r.EventsQuery,
        headers={"Last-Event-ID": "Go on after this id."},
    ),
)  # fmt: skip

BLOBS = (
    Route(
        "POST", "/v1/blobs/missing", blobs.missing, "Which blobs are still to upload", "blobs",
        {200: Answer("the digests", a.MissingView)},
        query=r.TenantQuery, body=BodyOf(r.MissingBody),
    ),
    Route(
        "PUT", "/v1/blobs/{sha256}", blobs.put, "Upload a blob of at most 64 MiB", "blobs",
        {
            201: Answer("stored", a.BlobView),
            200: Answer("was there", a.BlobView),
        },
        access=Access.BLOBS, query=r.TenantQuery, body=BodyOf(media=OCTETS),
    ),
    Route(
        "HEAD", "/v1/blobs/{sha256}", blobs.head, "Whether a blob may be read", "blobs",
        {200: Answer("it may", media=OCTETS)}, access=Access.BLOBS,
    ),
    Route(
        "GET", "/v1/blobs/{sha256}", blobs.get, "Download a blob", "blobs",
        {200: Answer("the content", media=OCTETS), 206: Answer("the rest", media=OCTETS)},
        access=Access.BLOBS, problems=(409, 416),
    ),
)  # fmt: skip

FLEET = (
    Route(
        "GET", "/v1/clusters", fleet.clusters, "All clusters", "fleet",
        {200: Answer("the clusters", f.ClustersView)},
    ),
    Route(
        "POST", "/v1/clusters/invite", fleet.invite, "Invite a cluster", "fleet",
        {201: Answer("the invitation", f.InvitationView)},
        access=Access.OPERATOR, body=BodyOf(r.InviteBody), problems=(409,),
    ),
    Route(
        "GET", "/v1/clusters/{name}", fleet.cluster, "One cluster", "fleet",
        {200: Answer("the cluster", f.ClusterView)},
    ),
    Route(
        "POST", "/v1/clusters/{name}/drain", fleet.drain, "Place nothing new there", "fleet",
        {202: Answer("draining", f.ClusterStateView)},
        access=Access.OPERATOR, body=BodyOf(r.DrainBody, optional=True), problems=(409,),
    ),
    Route(
        "POST", "/v1/clusters/{name}/remove", fleet.remove, "Put a cluster out", "fleet",
        {202: Answer("its certificates are void", f.ClusterStateView)},
        access=Access.OPERATOR,
    ),
    Route(
        "GET", "/v1/prices", fleet.prices, "Prices with age and source", "fleet",
        {200: Answer("the prices", f.PricesView)},
    ),
    Route(
        "GET", "/v1/latency", fleet.latency, "Round trips between regions", "fleet",
        {200: Answer("the round trips", f.LatencyView)},
    ),
)  # fmt: skip

JOINING = (
    Route(
        "GET", "/v1/ca", joining.ca, "The CA, to check against a pinned hash", "joining",
        {200: Answer("the CA", f.CaView)}, access=Access.OPEN,
    ),
    Route(
        "POST", "/v1/enrol", joining.enrol, "A certificate for an invitation", "joining",
        {200: Answer("the certificate", f.SignedView)},
        access=Access.OPEN, body=BodyOf(r.EnrolBody), problems=(403, 409),
    ),
    Route(
        "POST", "/v1/renew", joining.renew, "The next certificate for the last", "joining",
        {200: Answer("the certificate", f.SignedView)},
        access=Access.OPEN, body=BodyOf(r.RenewBody), problems=(403,),
    ),
    Route(
        "POST", "/v1/session-check", joining.session_check, "Why a session was refused",
        "joining", {200: Answer("the verdict", f.VerdictView)},
        access=Access.OPEN, body=BodyOf(r.SessionCheckBody),
    ),
)  # fmt: skip

ADMIN = (
    Route(
        "GET", "/v1/status", admin.status, "The federation in a few figures", "broker",
        {200: Answer("the figures", f.StatusView)},
    ),
    Route(
        "GET", "/v1/version", admin.version, "What answers", "broker",
        {200: Answer("the version", f.VersionView)},
    ),
    Route(
        "GET", "/v1/whoami", admin.whoami, "Who you are", "broker",
        {200: Answer("you", f.WhoamiView)},
    ),
    Route(
        "GET", "/v1/usage", admin.usage, "What was used in a period", "broker",
        {200: Answer("the usage", f.UsageView)}, query=r.UsageQuery,
    ),
    Route(
        "GET", "/v1/tenants", admin.tenants, "Tenants", "tenants",
        {200: Answer("the tenants", f.TenantsView)},
    ),
    Route(
        "PUT", "/v1/tenants/{tenant}", admin.write_tenant, "Write a tenant", "tenants",
        {200: Answer("as written", f.TenantView)},
        access=Access.OPERATOR, body=BodyOf(r.TenantBody),
    ),
    Route(
        "GET", "/v1/datasets", datasets.datasets, "Datasets", "data",
        {200: Answer("the datasets", f.DatasetsView)},
    ),
    Route(
        "GET", "/v1/links", datasets.links, "Ways of data between regions", "data",
        {200: Answer("the links", f.LinksView)},
    ),
    Route(
        "PUT", "/v1/datasets/{dataset}", datasets.write, "Write a dataset", "data",
        {200: Answer("as written", f.DatasetView)},
        access=Access.OPERATOR, body=BodyOf(r.DatasetBody),
    ),
    Route(
        "DELETE", "/v1/datasets/{dataset}", datasets.remove, "Forget a dataset", "data",
        {200: Answer("as it was", f.DatasetView)}, access=Access.OPERATOR,
    ),
    Route(
        "GET", "/v1/freeze", freeze.show, "Whether what runs is frozen, and what waits", "broker",
        {200: Answer("how it stands", f.FreezeView)}, access=Access.OPERATOR,
    ),
    Route(
        "PUT", "/v1/freeze", freeze.write, "Freeze what runs, or let go", "broker",
        {200: Answer("how it stands", f.FreezeView)},
        access=Access.OPERATOR, body=BodyOf(r.FreezeBody),
    ),
    Route(
        "POST", "/v1/freeze/approve", freeze.approve, "Approve what waits", "broker",
        {200: Answer("how it stands", f.FreezeView)},
        access=Access.OPERATOR, body=BodyOf(r.ApproveBody), problems=(409,),
    ),
    Route(
        "GET", "/v1/tokens", admin.tokens, "Tokens, without secrets", "tenants",
        {200: Answer("the tokens", f.TokensView)}, access=Access.OPERATOR,
    ),
    Route(
        "POST", "/v1/tokens", admin.make_token, "Make a token", "tenants",
        {201: Answer("the token", f.MadeTokenView)},
        access=Access.OPERATOR, body=BodyOf(r.TokenBody),
    ),
    Route(
        "DELETE", "/v1/tokens/{token}", admin.revoke, "Revoke a token", "tenants",
        {200: Answer("revoked", f.RevokedView)}, access=Access.OPERATOR,
    ),
)  # fmt: skip

POLICIES = (
    Route(
        "GET", "/v1/policies", policies.policies, "Routing policies in force", "policies",
        {200: Answer("the policies", p.PoliciesView)},
    ),
    Route(
        "POST", "/v1/policies/test", policies.test,
        "Which jobs a policy would move and what that costs; nothing is stored", "policies",
        {200: Answer("the jobs that would move", p.TrialView)},
        access=Access.OPERATOR, body=BodyOf(r.PolicyTestBody),
    ),
    Route(
        "GET", "/v1/policies/{policy}", policies.policy, "One version of a policy", "policies",
        {200: Answer("the policy", p.PolicyView)}, query=r.PolicyQuery,
    ),
    Route(
        "PUT", "/v1/policies/{policy}", policies.write, "Apply a policy", "policies",
        {200: Answer("the version in force", p.WrittenPolicyView)},
        access=Access.OPERATOR, body=BodyOf(r.PolicyBody), problems=(409,),
    ),
    Route(
        "GET", "/v1/policies/{policy}/history", policies.history, "Its versions", "policies",
        {200: Answer("the versions", p.HistoryView)},
    ),
    Route(
        "POST", "/v1/policies/{policy}/rollback", policies.rollback,
        "Bring an older text back, as a new version", "policies",
        {200: Answer("the version in force", p.WrittenPolicyView)},
        access=Access.OPERATOR, body=BodyOf(r.RollbackBody), problems=(409,),
    ),
)  # fmt: skip

INSIGHT = (
    Route(
        "GET", "/v1/cycles", cycles.cycles, "Decisions stored with their problems", "decisions",
        {200: Answer("the decisions", i.StoredCyclesView)},
        access=Access.OPERATOR, query=r.CyclesQuery,
    ),
    Route(
        "GET", "/v1/cycles/{cycle}", cycles.cycle,
        "The problem of a decision, to decide it again", "decisions",
        {200: Answer("the problem", i.StoredProblemView)}, access=Access.OPERATOR,
    ),
    Route(
        "GET", "/v1/decide/stats", cycles.stats,
        "What decisions gained over the floor, and how predictions came true", "decisions",
        {200: Answer("by day", i.DecisionStatsView)}, query=r.StatsQuery,
    ),
    Route(
        "POST", "/v1/whatif", decisions.whatif,
        "The queue decided as it is and in a changed world; nothing is stored", "decisions",
        {200: Answer("today and what if", i.WhatIfView)}, body=BodyOf(r.WhatIfBody),
    ),
)  # fmt: skip

ROUTES: tuple[Route, ...] = (*JOBS, *BLOBS, *FLEET, *JOINING, *ADMIN, *POLICIES, *INSIGHT)
