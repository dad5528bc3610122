"""Users, roles and the health of a cluster: for set-up and diagnosis, not for the data path.

Users have no passwords: etcd takes the common name of the client's certificate as the user.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from federation.etcd import etcdwire_pb2 as pb
from federation.etcd.convert import prefix_range
from federation.etcd.members import Members, Method

_AUTH = "/etcdserverpb.Auth/"
_USER_ADD = Method(_AUTH + "UserAdd", pb.AuthUserAddResponse)
_USER_GET = Method(_AUTH + "UserGet", pb.AuthUserGetResponse)
_USER_LIST = Method(_AUTH + "UserList", pb.AuthUserListResponse)
_USER_DELETE = Method(_AUTH + "UserDelete", pb.AuthUserDeleteResponse)
_USER_GRANT = Method(_AUTH + "UserGrantRole", pb.AuthUserGrantRoleResponse)
_USER_REVOKE = Method(_AUTH + "UserRevokeRole", pb.AuthUserRevokeRoleResponse)
_ROLE_ADD = Method(_AUTH + "RoleAdd", pb.AuthRoleAddResponse)
_ROLE_GET = Method(_AUTH + "RoleGet", pb.AuthRoleGetResponse)
_ROLE_DELETE = Method(_AUTH + "RoleDelete", pb.AuthRoleDeleteResponse)
_ROLE_GRANT = Method(_AUTH + "RoleGrantPermission", pb.AuthRoleGrantPermissionResponse)
_ROLE_REVOKE = Method(_AUTH + "RoleRevokePermission", pb.AuthRoleRevokePermissionResponse)
_ENABLE = Method(_AUTH + "AuthEnable", pb.AuthEnableResponse)
_DISABLE = Method(_AUTH + "AuthDisable", pb.AuthDisableResponse)

_MAINTENANCE = "/etcdserverpb.Maintenance/"
_STATUS = Method(_MAINTENANCE + "Status", pb.StatusResponse)
_ALARM = Method(_MAINTENANCE + "Alarm", pb.AlarmResponse)
_DEFRAGMENT = Method(_MAINTENANCE + "Defragment", pb.DefragmentResponse)


class Access(enum.Enum):
    """What a role may do with a range."""

    READ = pb.Permission.Type.READ
    WRITE = pb.Permission.Type.WRITE
    READ_WRITE = pb.Permission.Type.READWRITE


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """One member as it sees itself. Sizes are of its database file, allocated and in use."""

    member_id: int
    leader_id: int
    version: str
    revision: int
    db_size_bytes: int
    db_in_use_bytes: int
    errors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alarm raised by a member: "NOSPACE" or "CORRUPT"."""

    member_id: int
    kind: str


class EtcdAdmin:
    """Administration over the connections of a client (`EtcdClient.members`).

    What is there already raises `AlreadyExists`, what is not there `InvalidRequest`; without
    the role root once authentication is on, `PermissionDenied`.
    """

    def __init__(self, members: Members) -> None:
        self._members = members

    # Users and roles --------------------------------------------------------------------------

    async def user_add(self, name: str) -> None:
        """Add a user who logs in by certificate only."""
        request = pb.AuthUserAddRequest(name=name)
        request.options.no_password = True
        await self._members.write(_USER_ADD, request.SerializeToString())

    async def user_delete(self, name: str) -> None:
        """Remove a user."""
        request = pb.AuthUserDeleteRequest(name=name)
        await self._members.write(_USER_DELETE, request.SerializeToString())

    async def users(self) -> tuple[str, ...]:
        """Names of all users."""
        return tuple((await self._members.read(_USER_LIST, b"")).users)

    async def user_roles(self, name: str) -> tuple[str, ...]:
        """Roles of one user."""
        request = pb.AuthUserGetRequest(name=name)
        return tuple((await self._members.read(_USER_GET, request.SerializeToString())).roles)

    async def user_grant_role(self, user: str, role: str) -> None:
        """Give a user a role; again is not an error."""
        request = pb.AuthUserGrantRoleRequest(user=user, role=role)
        await self._members.write(_USER_GRANT, request.SerializeToString())

    async def user_revoke_role(self, user: str, role: str) -> None:
        """Take a role from a user."""
        request = pb.AuthUserRevokeRoleRequest(name=user, role=role)
        await self._members.write(_USER_REVOKE, request.SerializeToString())

    async def role_add(self, name: str) -> None:
        """Add a role that may do nothing yet."""
        request = pb.AuthRoleAddRequest(name=name)
        await self._members.write(_ROLE_ADD, request.SerializeToString())

    async def role_delete(self, name: str) -> None:
        """Remove a role from the cluster and all its users."""
        request = pb.AuthRoleDeleteRequest(role=name)
        await self._members.write(_ROLE_DELETE, request.SerializeToString())

    async def role_grants(self, name: str) -> tuple[tuple[Access, bytes, bytes], ...]:
        """What a role may do: access, first key, end of range (empty = that key alone)."""
        request = pb.AuthRoleGetRequest(role=name)
        answer = await self._members.read(_ROLE_GET, request.SerializeToString())
        return tuple((Access(p.perm_type), p.key, p.range_end) for p in answer.perm)

    async def role_grant_prefix(self, role: str, prefix: str, access: Access) -> None:
        """Let a role access every key with `prefix`; replaces its grant for the same range."""
        request = pb.AuthRoleGrantPermissionRequest(name=role)
        request.perm.perm_type = access.value
        request.perm.key, request.perm.range_end = prefix_range(prefix)
        await self._members.write(_ROLE_GRANT, request.SerializeToString())

    async def role_revoke_prefix(self, role: str, prefix: str) -> None:
        """Take back what `role_grant_prefix` gave."""
        request = pb.AuthRoleRevokePermissionRequest(role=role)
        request.key, request.range_end = prefix_range(prefix)
        await self._members.write(_ROLE_REVOKE, request.SerializeToString())

    async def auth_enable(self) -> None:
        """Demand permissions from now on; a user root with role root must exist."""
        await self._members.write(_ENABLE, b"")

    async def auth_disable(self) -> None:
        """Let everyone with a certificate do everything again."""
        await self._members.write(_DISABLE, b"")

    # Health -----------------------------------------------------------------------------------

    async def status(self) -> MemberStatus:
        """The member in use as it sees itself; ask each through a client of its own."""
        answer = await self._members.read(_STATUS, b"")
        return MemberStatus(
            member_id=answer.header.member_id,
            leader_id=answer.leader,
            version=answer.version,
            revision=answer.header.revision,
            db_size_bytes=answer.db_size,
            db_in_use_bytes=answer.db_size_in_use,
            errors=tuple(answer.errors),
        )

    async def alarms(self) -> tuple[Alarm, ...]:
        """Alarms of all members; any makes the cluster refuse writes or all."""
        answer = await self._members.read(_ALARM, b"")
        return tuple(
            Alarm(alarm.member_id, pb.AlarmType.Name(alarm.alarm)) for alarm in answer.alarms
        )

    async def clear_space_alarms(self) -> None:
        """Take writes again after compaction and defragmentation made room."""
        for alarm in (await self._members.read(_ALARM, b"")).alarms:
            if alarm.alarm == pb.AlarmType.NOSPACE:
                request = pb.AlarmRequest(
                    action=pb.AlarmRequest.AlarmAction.DEACTIVATE,
                    member_id=alarm.member_id,
                    alarm=alarm.alarm,
                )
                await self._members.write(_ALARM, request.SerializeToString())

    async def defragment(self) -> None:
        """Give unused file space of the member in use back; it answers nobody meanwhile."""
        await self._members.write(_DEFRAGMENT, b"")
