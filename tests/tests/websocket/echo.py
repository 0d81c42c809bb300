"""A WebSocket server that sends every message back. It handles frames strictly in the order in which they came, so
that what it answers does not depend on how the network cut them.

    python3 echo.py PORT
"""

import socket
import sys
import threading

from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Ping, Request, TextMessage
from wsproto.utilities import RemoteProtocolError


def serve(connection):
    session = WSConnection(ConnectionType.SERVER)
    pieces = []
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while True:
        received = connection.recv(65536)
        try:
            session.receive_data(received or None)
        except RemoteProtocolError as error:
            if error.event_hint is not None:
                connection.sendall(session.send(error.event_hint))
            return
        for event in session.events():
            if isinstance(event, Request):
                connection.sendall(session.send(AcceptConnection()))
            elif isinstance(event, (TextMessage, BytesMessage)):
                pieces.append(event.data)
                if event.message_finished:
                    whole = pieces[0][:0].join(pieces)
                    connection.sendall(session.send(type(event)(data=whole)))
                    pieces.clear()
            elif isinstance(event, Ping):
                connection.sendall(session.send(event.response()))
            elif isinstance(event, CloseConnection):
                # The peer may be gone already: it then reads no answer.
                if received:
                    connection.sendall(session.send(event.response()))
                return


def talk(connection):
    with connection:
        try:
            serve(connection)
            # What the peer still sends is read, or the close would be a reset and could overtake the last frame.
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass
        except OSError:
            pass


listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=64)
while True:
    threading.Thread(target=talk, args=listener.accept()[:1], daemon=True).start()
